// Goes before every component's script. Text is set as text, never as HTML.

function element(tag, className, text) {
  const node = document.createElement(tag);
  node.className = className;
  if (text !== undefined && text !== null) node.textContent = text;
  return node;
}

