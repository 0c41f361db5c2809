// Elements, made from text alone: nothing that anybody says is ever read as HTML.

export const TEXT_MAX = 200_000;

export function make(tag, fields = {}, ...children) {
  const element = Object.assign(document.createElement(tag), fields);
  element.append(...children);
  return element;
}

/** An element for what somebody said, in the direction of its own script. */
export const said = (tag, text, className = "") => make(tag, { className, dir: "auto", textContent: text });

/** Make an element show a text; what stands there already is kept, and with it what a reader has selected. */
export function show(element, text) {
  const whole = text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}… (too long to show)` : text;
  const node = element.firstChild;
  if (node && whole.startsWith(node.data)) node.appendData(whole.slice(node.data.length));
  else element.textContent = whole;
}
