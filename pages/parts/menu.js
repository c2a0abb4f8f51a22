// On a phone the page menu closes after a choice: it would cover what was chosen.

const CHOICES = '[data-testid="stSidebarNavLink"], '
  + '[data-testid="stSidebarUserContent"] [data-testid="stButton"] button';
const CLOSE = '[data-testid="stSidebarCollapseButton"] button';
const PHONE = 768;  // pixels up to which the menu lies over the page

export default function () {
  if (window.afterimageMenu) return;
  window.afterimageMenu = true;
  document.addEventListener("click", (event) => {
    if (window.innerWidth > PHONE || !event.target.closest(CHOICES)) return;
    setTimeout(() => document.querySelector(CLOSE)?.click());
  });
}
