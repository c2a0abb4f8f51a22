// Scrolls to what a step of the tour speaks of, and hears the arrow keys.

const PATIENCE = 15_000; // milliseconds that an element may take to appear
const LIFTED = "data-afterimage-spot"; // no class: Streamlit writes those anew
const KEPT = 500; // milliseconds between looks at whether it is still there

function calm() {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

// Whether a key press means something to the element that it went to.
function isTaken(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return true;
  return event.composedPath().some((node) =>
    node.matches?.(
      "input, textarea, select, audio, video, [contenteditable], [role=slider], " +
      "[role=radiogroup], [role=tablist], [role=listbox], [role=dialog], .tile, .js-plotly-plot"
    ));
}

function lift(page, spot) {
  page.querySelectorAll(`[${LIFTED}]`).forEach((node) => {
    if (node !== spot) node.removeAttribute(LIFTED);
  });
  if (spot) spot.setAttribute(LIFTED, "");
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const page = document;
  page.documentElement.classList.toggle("afterimage-present", data.present);

  parentElement.onKey ??= (event) => {
    const way = { ArrowRight: "next", ArrowLeft: "back" }[event.key];
    if (!way || isTaken(event)) return;
    event.preventDefault();
    parentElement.press(way);
  };
  parentElement.press = (way) => setTriggerValue("pressed", way);
  page.removeEventListener("keydown", page.afterimageGuide);
  page.afterimageGuide = parentElement.onKey;
  page.addEventListener("keydown", page.afterimageGuide);

  const signature = `${data.step} ${data.spot} ${data.present}`;
  if (page.afterimageStep === signature) return;
  page.afterimageStep = signature;
  lift(page, null);
  if (!data.spot) return;
  const began = performance.now();
  const find = () => page.querySelector(`.st-key-${CSS.escape(data.spot)}`);
  const keep = () => { // a page that runs again may make the element anew
    if (page.afterimageStep !== signature) return;
    lift(page, find());
    setTimeout(keep, KEPT);
  };
  const look = () => {
    if (page.afterimageStep !== signature) return; // the visitor went on
    const spot = find();
    if (spot && spot.getBoundingClientRect().height > 0) {
      if (data.present) keep();
      const tall = spot.getBoundingClientRect().height > window.innerHeight * 0.6;
      spot.style.scrollMarginTop = "5rem"; // below the navigation
      spot.scrollIntoView({
        behavior: calm() ? "auto" : "smooth",
        block: tall ? "start" : "center",
      });
      return;
    }
    if (performance.now() - began < PATIENCE) setTimeout(look, 150);
  };
  setTimeout(look, 300); // the page of the step before may still be there
}
