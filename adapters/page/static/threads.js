// The list of threads, the one that moved last first.

import { make, said } from "./elements.js";

const STATES = { idle: "", busy: "works", paused: "waits for you" };

export class Threads {
  #parts;
  #rest;
  #pages = 1;

  /** `parts`: the elements list and more. */
  constructor(parts, rest) {
    this.#parts = parts;
    this.#rest = rest;
  }

  /** Fetch one more page from the next time on. */
  widen() {
    this.#pages++;
  }

  /** Fetch and draw; returns the name of the current thread, if it is among them. */
  async load(current) {
    const items = [];
    let cursor = null;
    for (let page = 0; page < this.#pages && (page === 0 || cursor); page++) {
      const found = await this.#rest.threads(cursor);
      items.push(...found.items);
      cursor = found.next_cursor;
    }
    items.sort((one, other) => (one.updated_at < other.updated_at ? 1 : -1));
    this.#parts.more.hidden = !cursor;
    this.#parts.list.replaceChildren(...items.map((each) => entry(each, current)));
    const found = items.find(({ id }) => id === current);
    return found && nameOf(found);
  }
}

const nameOf = ({ title, agent }) => title || `Chat with ${agent}`;

function entry(each, current) {
  const moved = new Date(each.updated_at).toLocaleString();
  const told = [each.agent, STATES[each.state], moved].filter(Boolean).join(" · ");
  const link = make("a", { href: `#${each.id}` }, said("span", nameOf(each)), said("small", told));
  if (each.id === current) link.ariaCurrent = "page";
  return make("li", {}, link);
}
