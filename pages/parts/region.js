// The picture asked about; a rectangle dragged over it asks about that part only.
// A finger scrolls the page as ever: the sliders below do the same for it.

function place(node, box, size) {
  const [x0, y0, x1, y1] = box;
  node.style.left = `${(100 * x0) / size[0]}%`;
  node.style.top = `${(100 * y0) / size[1]}%`;
  node.style.width = `${(100 * (x1 - x0)) / size[0]}%`;
  node.style.height = `${(100 * (y1 - y0)) / size[1]}%`;
}

// The whole cells, in pixels, that a drag between two points covers, at least one.
function covered(from, to, size, cell) {
  const box = [];
  for (const axis of [0, 1]) {
    const low = Math.floor((Math.min(from[axis], to[axis]) * size[axis]) / cell) * cell;
    const high = Math.ceil((Math.max(from[axis], to[axis]) * size[axis]) / cell) * cell;
    box[axis] = Math.max(0, Math.min(low, size[axis] - cell));
    box[axis + 2] = Math.min(size[axis], Math.max(high, box[axis] + cell));
  }
  return box;
}

// Whether a drag is longer than a trembling click, in pixels of the screen.
function meant(from, to, bounds) {
  return Math.abs(to[0] - from[0]) * bounds.width > 8
    && Math.abs(to[1] - from[1]) * bounds.height > 8;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const signature = JSON.stringify(data);
  if (parentElement.shown === signature) return;
  parentElement.shown = signature;

  const frame = element("div", "picture");
  const ground = element("div", "ground");
  const image = element("img", "");
  image.src = data.src;
  image.alt = data.alt;
  image.draggable = false;
  const box = element("div", "box");
  box.hidden = !data.box;
  if (data.box) place(box, data.box, data.size);
  ground.append(image, box);
  ground.style.width = `${data.shown}px`;
  if (data.shown % data.size[0] === 0) image.className = "crisp";
  frame.append(ground);

  let start = null;
  const point = (event) => {
    const bounds = image.getBoundingClientRect();
    return [
      (event.clientX - bounds.left) / bounds.width,
      (event.clientY - bounds.top) / bounds.height,
    ];
  };
  ground.onpointerdown = (event) => {
    if (event.pointerType === "touch" || event.button !== 0) return;
    start = point(event);
    ground.setPointerCapture(event.pointerId);
  };
  ground.onpointermove = (event) => {
    if (!start) return;
    box.hidden = false;
    place(box, covered(start, point(event), data.size, data.cell), data.size);
  };
  ground.onpointerup = (event) => {
    if (!start) return;
    const end = point(event);
    const drawn = covered(start, end, data.size, data.cell);
    const isDrag = meant(start, end, image.getBoundingClientRect());
    start = null;
    // A click without a drag means nothing.
    if (!isDrag) {
      box.hidden = !data.box;
      if (data.box) place(box, data.box, data.size);
      return;
    }
    setTriggerValue("drawn", drawn);
  };
  parentElement.querySelector(".picture")?.remove();
  parentElement.append(frame);
}
