// An image forming out of noise, level by level, and what helped at each. All frames
// are here; nothing is asked of the server but details. Text is set as text.

const SECOND_A_LEVEL = 1200;  // milliseconds that a level stays

function image(src, className = "") {
  const node = element("img", className);
  node.src = src;
  node.alt = "";  // what it shows is said beside it
  return node;
}

// All levels' images lie on each other, so that none is loaded while it plays.
function stack(frames, which, caption) {
  const figure = element("figure", which);
  const ground = element("div", "ground");
  ground.append(...frames.map((frame) => image(frame[which])));
  const words = element("figcaption", "", caption);
  words.append(element("span", "noise", ""));
  figure.append(ground, words);
  return figure;
}

function tile(picture, sure, pick) {
  const button = element("button", sure ? "tile" : "tile unsure");
  button.type = "button";
  button.title = picture.alt;
  button.setAttribute("aria-label", sure ? picture.alt : `${picture.alt}, within noise`);
  button.append(image(picture.src));
  picture.lines.slice(0, 2).forEach((line, place) =>
    button.append(element("span", place ? "line faint" : "line", line)));
  button.append(element("span", "line faint", sure ? "" : "within noise"));
  button.onclick = () => pick(picture.id);
  return button;
}

function bar(data, pick) {
  const cell = element("span", "cell");
  const mark = element("span", data.height < 0 ? "bar below" : "bar above");
  if (!data.sure) mark.classList.add("unsure");
  mark.style.setProperty("--height", Math.abs(data.height));
  cell.title = data.change;
  cell.onclick = pick;
  cell.append(mark);
  return cell;
}

function row(data, picture, frames, pick, go) {
  const line = element("div", "row");
  const head = element("button", "head");
  head.type = "button";
  head.title = picture.alt;
  head.append(image(picture.src), element("span", "label", picture.lines.join(", ")));
  head.onclick = () => pick(data.id);
  const cells = element("div", "cells");
  const said = data.bars.map((one, place) => `${frames[place].noise}: ${one.change}`);
  cells.setAttribute("role", "img");
  cells.setAttribute("aria-label", `Predicted change. ${said.join("; ")}`);
  cells.append(...data.bars.map((one, place) => bar(one, () => go(place))));
  line.append(head, cells);
  return line;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const signature = JSON.stringify(data);
  if (parentElement.shown === signature) return;
  parentElement.shown = signature;

  const { frames, pictures, rows } = data;
  const last = frames.length - 1;
  const pick = (id) => setTriggerValue("picked", id);
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  let timer = null;

  const root = element("section", calm ? "player calm" : "player");
  root.setAttribute("aria-label", "The image forming out of noise");
  root.style.setProperty("--levels", frames.length);

  // One scale for all bars: how far they reach up and down from the line of no change.
  const heights = rows.flatMap((one) => one.bars.map((bar) => bar.height));
  root.style.setProperty("--up", Math.max(0.1, ...heights));
  root.style.setProperty("--down", Math.max(0.1, ...heights.map((height) => -height)));

  const stage = element("div", "stage");
  const noisy = stack(frames, "noisy", "With noise");
  const expected = stack(frames, "expected", "The model’s guess behind it");
  const beside = element("div", "beside");
  const words = element("p", "words", "");
  words.setAttribute("aria-live", "polite");
  const helped = element("h3", "", "Helped most at this level");
  const tops = element("div", "tops");
  beside.append(words);
  if (rows.length) beside.append(helped, tops);
  stage.append(noisy, expected, beside);

  const play = element("button", "play", "");
  play.type = "button";
  const slider = element("input", "slider");
  Object.assign(slider, { type: "range", min: 0, max: last, step: 1 });
  slider.setAttribute("aria-label", "Noise level, from noise to detail");
  const film = element("div", "film");
  film.setAttribute("aria-hidden", "true");  // the slider does the same
  film.append(...frames.map((frame, place) => {
    const cell = element("span", "cell");
    cell.append(image(frame.expected));
    cell.onclick = () => go(place);
    return cell;
  }));
  const ends = element("div", "ends");
  ends.append(element("span", "", "← noise: structure"), element("span", "", "detail →"));
  const track = element("div", "track");
  track.append(slider, film, ends);
  const controls = element("div", "row controls");
  controls.append(play, track);

  root.append(stage, controls);
  if (rows.length) {
    root.append(element("h3", "", `When the ${rows.length} strongest matter`));
    for (const one of rows) root.append(row(one, pictures[one.id], frames, pick, go));
    root.append(element("p", "faint note",
      "Height: square root of the predicted change, so that small bars can be seen. " +
      "Up: it helped. Down: it worked against. Pale: within noise."));
  }

  function show(level) {
    parentElement.level = level;
    const frame = frames[level];
    slider.value = level;
    slider.setAttribute("aria-valuetext", `${frame.noise}, ${frame.words}`);
    words.textContent = frame.words;
    for (const figure of [noisy, expected])
      figure.querySelectorAll("img").forEach((one, place) =>
        one.classList.toggle("now", place === level));
    noisy.querySelector(".noise").textContent = frame.noise;
    tops.replaceChildren(...(frame.tops || []).map((one) =>
      tile(pictures[one.id], one.sure, pick)));
    root.querySelectorAll(".cell").forEach((cell) =>
      cell.classList.toggle("now", [...cell.parentElement.children].indexOf(cell) === level));
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = calm ? "Next level" : "▶ Play";
    words.setAttribute("aria-live", "polite");
  }

  function go(level) { stop(); show(level); }

  function next() {
    const level = parentElement.level;
    if (!root.isConnected || level >= last) { stop(); return; }
    show(level + 1);
    if (level + 1 === last) stop();
  }

  play.onclick = () => {
    if (timer !== null) { stop(); return; }
    if (parentElement.level >= last) show(0);
    else if (calm) next();
    if (calm) return;
    words.setAttribute("aria-live", "off");  // or it would be read over and over
    play.textContent = "⏸ Pause";
    timer = setInterval(next, SECOND_A_LEVEL);
  };
  slider.oninput = () => go(Number(slider.value));

  parentElement.stop?.();
  parentElement.stop = stop;
  parentElement.querySelector(".player")?.remove();
  parentElement.append(root);
  stop();
  show(Math.min(parentElement.level || 0, last));
}
