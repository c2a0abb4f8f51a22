// Rows of clickable pictures. All text comes as data and is set as text, never as HTML.

// A rank, and a bar as long as the score is strong.
function strength(data) {
  const line = element("span", data.sure ? "strength" : "strength unsure");
  const bar = element("span", "bar");
  const fill = element("span", "fill");
  fill.style.width = `${100 * data.strength}%`;
  bar.append(fill);
  line.append(element("span", "rank", data.rank), bar);
  return line;
}

function tile(data, chosen, pick) {
  const button = element("button", "tile");
  button.type = "button";
  button.dataset.id = data.id;
  button.title = data.alt;
  button.setAttribute("aria-label", data.alt);
  if (chosen !== null) button.setAttribute("aria-pressed", data.id === chosen);
  const frame = element("span", "frame");
  const picture = element("img", "");
  picture.src = data.src;
  picture.alt = "";  // the button's label says it
  frame.append(picture);
  if (data.mark) frame.append(element("span", "mark", data.mark));
  if (data.tip) frame.append(element("span", "tip", data.tip));
  button.append(frame);
  if (data.rank) button.append(strength(data));
  if (data.score) {
    const score = element("span", data.sure ? "score" : "score unsure", data.score);
    button.append(score);
    if (data.error) button.append(element("span", "error", data.error));
  }
  (data.lines || []).forEach((line, place) =>
    button.append(element("span", place ? "line faint" : "line", line)));
  button.onclick = () => pick(data.id);
  return button;
}

// One tab stop a row; arrows move inside it.
function moveByArrows(row) {
  const tiles = [...row.children];
  tiles.forEach((button, place) => { button.tabIndex = place ? -1 : 0; });
  const chosen = tiles.find((button) => button.ariaPressed === "true");
  if (chosen) { tiles[0].tabIndex = -1; chosen.tabIndex = 0; }
  row.onkeydown = (event) => {
    const here = tiles.indexOf(event.target);
    const below = tiles.findIndex((button) => button.offsetTop > tiles[0].offsetTop);
    const columns = below > 0 ? below : tiles.length;
    const steps = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns,
      Home: -here, End: tiles.length - 1 - here,
    };
    const next = tiles[here + steps[event.key]];
    if (here < 0 || !next) return;
    event.preventDefault();
    tiles[here].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const signature = JSON.stringify(data);
  if (parentElement.shown === signature) return;
  parentElement.shown = signature;

  const focused = parentElement.activeElement?.dataset?.id;
  const scrolled = parentElement.querySelector(".row")?.scrollLeft || 0;
  const root = element("div", `strips ${data.layout}`);
  root.style.setProperty("--columns", data.columns);
  root.style.setProperty("--narrow-columns", data.narrow_columns);
  const pick = (id) => setTriggerValue("picked", id);
  for (const strip of data.strips) {
    const section = element("section", `strip ${strip.tone}`);
    section.setAttribute("aria-label", strip.label || strip.title);
    if (data.layout !== "gallery") section.append(element("h3", "", strip.title));
    const row = element("div", "row");
    row.append(...strip.tiles.map((item) => tile(item, data.chosen ?? null, pick)));
    section.append(strip.tiles.length ? row : element("p", "line faint", strip.empty));
    moveByArrows(row);
    root.append(section);
  }
  parentElement.querySelector(".strips")?.remove();
  parentElement.append(root);
  root.querySelector(".row").scrollLeft = scrolled;
  if (focused) root.querySelector(`[data-id="${focused}"]`)?.focus();
}
