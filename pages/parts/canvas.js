// A canvas to draw on by mouse, pen or finger. The strokes are kept in the browser's tab,
// so that they outlive a rerun, another page and a reload; only "Ask" sends the image.

const SIZES = [["Fine", 0.025], ["Medium", 0.06], ["Broad", 0.14]];  // of the side
const PIXELS = 512;  // the side of what is drawn and sent

function button(className, text, act) {
  const node = element("button", className, text);
  node.type = "button";
  node.onclick = act;
  return node;
}

// A tab without storage, as in some private windows, keeps the strokes while it can.
function load(store) {
  try { return JSON.parse(sessionStorage.getItem(store)) || []; } catch { return []; }
}

function save(store, strokes) {
  try { sessionStorage.setItem(store, JSON.stringify(strokes)); } catch { /* full */ }
}

function paint(pen, stroke, ground) {
  if (stroke.clear) {
    pen.fillStyle = ground;
    pen.fillRect(0, 0, PIXELS, PIXELS);
    return;
  }
  pen.strokeStyle = stroke.erases ? ground : stroke.colour;
  pen.lineWidth = stroke.width * PIXELS;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  const [first, ...rest] = stroke.points;
  pen.moveTo(first[0] * PIXELS, first[1] * PIXELS);
  for (const point of rest.length ? rest : [first])
    pen.lineTo(point[0] * PIXELS, point[1] * PIXELS);
  pen.stroke();
}

// Buttons of which one is pressed.
function choices(className, words, options, chosen, choose) {
  const group = element("div", `group ${className}`);
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", words);
  const press = (one) => {
    for (const node of group.children)
      node.setAttribute("aria-pressed", String(node.option === one));
    choose(one);
  };
  for (const option of options) {
    const node = button("choice", "", () => press(option));
    Object.assign(node, { option, title: option.name });
    node.setAttribute("aria-label", option.name);
    const mark = element("span", "mark");
    if (option.value) mark.style.background = option.value;
    if (option.erases) mark.classList.add("eraser");
    if (option.width) mark.style.setProperty("--share", option.width);
    node.append(mark);
    group.append(node);
  }
  press(options[chosen]);
  return group;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  parentElement.send = (image) => setTriggerValue("asked", image);
  const signature = JSON.stringify(data);
  if (parentElement.shown === signature) return;
  parentElement.shown = signature;

  let strokes = load(data.store), current = null, colour = null, width = 0;
  const root = element("section", "drawing");
  root.setAttribute("aria-label", "Draw an image");
  const canvas = element("canvas", "paper");
  canvas.width = canvas.height = PIXELS;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Your drawing, by mouse, pen or finger");
  const pen = canvas.getContext("2d");
  const seen = element("canvas", "seen");
  seen.width = seen.height = data.side;
  seen.setAttribute("role", "img");
  seen.setAttribute("aria-label", `The drawing at ${data.side} × ${data.side} pixels`);
  seen.title = `As the model sees it: ${data.side} × ${data.side} pixels`;

  const visible = () => strokes.length > 0 && !strokes[strokes.length - 1].clear;
  function told() {
    undo.disabled = !strokes.length;
    clear.disabled = ask.disabled = !visible();
    const small = seen.getContext("2d");
    small.imageSmoothingQuality = "high";
    small.drawImage(canvas, 0, 0, data.side, data.side);
  }
  function redraw() {
    paint(pen, { clear: true }, data.ground);
    for (const stroke of strokes) paint(pen, stroke, data.ground);
    told();
  }
  // Drawn anew each time: a line painted piece by piece has other edges than a whole one.
  function add(stroke) {
    strokes.push(stroke);
    save(data.store, strokes);
    redraw();
  }

  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    const share = (at, low, length) => Math.round((1000 * (at - low)) / length) / 1000;
    return [share(event.clientX, box.left, box.width), share(event.clientY, box.top, box.height)];
  };
  canvas.onpointerdown = (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    event.preventDefault();
    canvas.setPointerCapture(event.pointerId);
    current = { ...colour, width, points: [point(event)] };
    paint(pen, current, data.ground);
  };
  canvas.onpointermove = (event) => {
    if (!current || !event.isPrimary) return;
    const between = event.getCoalescedEvents?.() || [];
    const last = current.points[current.points.length - 1];
    const fresh = (between.length ? between : [event]).map(point);
    current.points.push(...fresh);
    paint(pen, { ...current, points: [last, ...fresh] }, data.ground);
  };
  const lift = (event) => {
    if (!current || !event.isPrimary) return;
    const stroke = current;
    current = null;
    add(stroke);
  };
  canvas.onpointerup = canvas.onpointercancel = lift;

  const undo = button("plain", "Undo", () => {
    strokes.pop();
    save(data.store, strokes);
    redraw();
  });
  const clear = button("plain", "Clear", () => add({ clear: true }));
  const ask = button("ask", "Ask about this drawing", () =>
    parentElement.send(canvas.toDataURL("image/png")));

  const inks = [
    ...data.colours.map((one) => ({ ...one, colour: one.value })),
    { name: "Eraser", erases: true, value: data.ground },
  ];
  const tools = element("div", "tools");
  tools.append(
    choices("colours", "Colour", inks, 0,
      (one) => { colour = one.erases ? { erases: true } : { colour: one.colour }; }),
    choices("sizes", "Brush", SIZES.map(([name, size]) => ({ name, width: size })), 1,
      (one) => { width = one.width; }),
  );
  const last = element("div", "last");
  const acts = element("div", "group");
  acts.append(undo, clear);
  last.append(acts, seen);
  root.append(canvas, tools, last, ask);
  redraw();
  parentElement.querySelector(".drawing")?.remove();
  parentElement.append(root);
}
