// A table whose rows sort by a click on a heading and are chosen by a click. All text
// comes as data and is set as text, never as HTML.

function line(data, chosen, pick) {
  const row = element("tr", data.id === chosen ? "chosen" : "");
  row.onclick = () => pick(data.id);
  const head = element("th", "");
  head.scope = "row";
  const button = element("button", "name");
  button.type = "button";
  button.append(element("span", "title", data.title), element("span", "kind", data.kind));
  button.setAttribute("aria-pressed", data.id === chosen);
  head.append(button);
  const images = element("td", "images");
  for (const one of data.images) {
    const picture = element("img", "");
    Object.assign(picture, { src: one.src, alt: one.alt, title: one.alt });
    images.append(picture);
  }
  if (!data.images.length) images.append(element("span", "kind", data.wait));
  row.append(head, images);
  for (const one of data.cells) {
    const cell = element("td", "number", one.text);
    if (one.title) cell.title = one.title;
    row.append(cell);
  }
  return row;
}

// What a row is sorted by in a column: numbers where there are, otherwise the text.
function key(row, column) {
  if (column === 0) return row.title;
  if (column === 1) return row.images.map((one) => one.alt).join();
  const cell = row.cells[column - 2];
  return cell.value === undefined ? cell.text : cell.value;
}

function sorted(rows, { column, down }) {
  if (column === null) return rows;
  const order = (a, b) => {
    const [x, y] = [key(a, column), key(b, column)];
    // What has no number stands last, whichever way the others are sorted.
    if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
    const less = typeof x === "number" ? x - y : x.localeCompare(y);
    return down ? -less : less;
  };
  return [...rows].sort(order);
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const signature = JSON.stringify(data);
  if (parentElement.shown === signature) return;
  parentElement.shown = signature;
  parentElement.sorting ||= { column: null, down: true };

  const frame = element("div", "frame");
  frame.tabIndex = 0;  // can be scrolled by keyboard where it is wide
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", "Methods compared");
  const table = element("table", "");
  const heads = element("tr", "");
  const body = element("tbody", "");
  const pick = (id) => setTriggerValue("picked", id);

  function draw() {
    const { column, down } = parentElement.sorting;
    [...heads.children].forEach((head, place) => head.setAttribute(
      "aria-sort", place !== column ? "none" : down ? "descending" : "ascending"));
    body.replaceChildren(...sorted(data.rows, parentElement.sorting).map((row) =>
      line(row, data.chosen, pick)));
  }

  data.columns.forEach((column, place) => {
    const head = element("th", place > 1 ? "number" : "");
    head.scope = "col";
    const button = element("button", "sort", column.name);
    button.type = "button";
    if (column.help) button.title = column.help;
    button.onclick = () => {
      const { column: before, down } = parentElement.sorting;
      parentElement.sorting = { column: place, down: before === place ? !down : place > 1 };
      draw();
    };
    head.append(button);
    heads.append(head);
  });
  const top = element("thead", "");
  top.append(heads);
  table.append(top, body);
  frame.append(table);
  draw();
  parentElement.querySelector(".frame")?.remove();
  parentElement.append(frame);
}
