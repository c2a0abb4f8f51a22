// A table of coloured cells or pictures, with one before a row where it has one.
// All text comes as data and is set as text, never as HTML.

function cell(data) {
  if (data.src) {
    const node = element("td", "pictured");
    const picture = element("img", "");
    picture.src = data.src;
    picture.alt = data.title || "";
    picture.title = data.title || "";
    node.append(picture);
    if (data.text) node.append(element("span", "under", data.text));
    return node;
  }
  const node = element("td", data.strength < 0 ? "below" : "above", data.text);
  const strength = Math.min(Math.abs(data.strength || 0), 1);
  node.style.setProperty("--strength", `${Math.round(100 * strength)}%`);
  if (strength > 0.75) node.classList.add("strong");
  if (data.title) node.title = data.title;
  return node;
}

function rowHead(row, pick) {
  const head = element("th", "");
  head.scope = "row";
  if (row.id === undefined) {
    head.append(element("span", "label", row.label));
    return head;
  }
  const button = element("button", "head");
  button.type = "button";
  button.title = row.label;
  button.onclick = () => pick(row.id);
  const picture = element("img", "");
  picture.src = row.src;
  picture.alt = "";  // the label beside it says it
  button.append(picture, element("span", "label", row.label));
  head.append(button);
  return head;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const signature = JSON.stringify(data);
  if (parentElement.shown === signature) return;
  parentElement.shown = signature;

  const table = element("table", data.layout);
  table.append(element("caption", "", data.alt));
  const heads = element("tr", "");
  heads.append(element("td", "corner"));
  for (const name of data.columns) {
    const head = element("th", "", name);
    head.scope = "col";
    heads.append(head);
  }
  table.append(heads);
  const pick = (id) => setTriggerValue("picked", id);
  for (const row of data.rows) {
    const line = element("tr", "");
    line.append(rowHead(row, pick), ...row.cells.map(cell));
    table.append(line);
  }
  const frame = element("div", "frame");
  frame.tabIndex = 0;  // can be scrolled by keyboard where it is wide
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", data.alt);
  frame.append(table);
  parentElement.querySelector(".frame")?.remove();
  parentElement.append(frame);
}
