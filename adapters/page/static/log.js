// Draws a conversation: one list item per item, made once, changed only where the item has changed.

import { card } from "./card.js";
import { make, said, show } from "./elements.js";
import { json } from "./json.js";

const STEP = 200;
const NEAR = 60; // pixels
const DISPOSITIONS = {
  sending: "sending",
  failed: "not sent",
  started: "",
  replied: "reply",
  steered: "will be read at the next step",
  queued: "waits for the next run",
};
const OUTCOMES = {
  ok: "done",
  retry: "refused",
  denied: "denied",
  failed: "failed",
  unknown: "outcome unknown",
};

export class Log {
  #parts;
  #act;
  #made = new Map();
  #limit = STEP;
  #atEnd = true;
  #size = "";
  #drawn = {};

  /** `parts`: the elements scroll, list, earlier, dropped. `act`: answer(request, decision), again(message), rerun(run). */
  constructor(parts, act) {
    this.#parts = parts;
    this.#act = act;
    parts.earlier.onclick = () => this.#showEarlier();
    parts.scroll.onscroll = () => this.#scrolled();
    new ResizeObserver(() => this.#stay()).observe(parts.scroll);
  }

  clear() {
    this.#made.clear();
    this.#parts.list.replaceChildren();
    this.#limit = STEP;
    this.#atEnd = true;
  }

  draw(items, dropped, me) {
    const { list, earlier } = this.#parts;
    this.#drawn = { items, dropped, me };
    const shown = items.slice(-this.#limit);
    earlier.hidden = shown.length === items.length;
    this.#parts.dropped.hidden = !dropped || !earlier.hidden;
    this.#forget(new Set(shown.map((item) => item.id)));
    shown.forEach((item, at) => {
      const { node } = this.#entry(item, me);
      if (list.children[at] !== node) list.insertBefore(node, list.children[at] ?? null);
    });
    this.#stay();
  }

  /** Go to the end and stay there, until the reader scrolls away from it. */
  toEnd() {
    this.#atEnd = true;
    this.#stay();
  }

  #stay() {
    const { scroll } = this.#parts;
    if (this.#atEnd) scroll.scrollTop = scroll.scrollHeight;
    this.#size = sizeOf(scroll);
  }

  /** Tell a reader who leaves the end from an end that moved away, as when a phone is turned. */
  #scrolled() {
    const { scroll } = this.#parts;
    const isEnd = fromEnd(scroll) - scroll.clientHeight < NEAR;
    if (isEnd || sizeOf(scroll) === this.#size) this.#atEnd = isEnd;
  }

  #showEarlier() {
    const { scroll } = this.#parts;
    const before = fromEnd(scroll);
    this.#limit += STEP;
    this.draw(this.#drawn.items, this.#drawn.dropped, this.#drawn.me);
    scroll.scrollTop = scroll.scrollHeight - before;
  }

  #forget(kept) {
    for (const [id, { node }] of this.#made) {
      if (kept.has(id)) continue;
      node.remove();
      this.#made.delete(id);
    }
  }

  #entry(item, me) {
    let made = this.#made.get(item.id);
    if (!made) {
      made = MAKERS[item.type](item, me, this.#act);
      made.node.className = `item ${made.node.className}`;
      made.node.dataset.type = item.type;
      this.#made.set(item.id, made);
    }
    if (made.item !== item) made.update(item);
    made.node.classList.toggle("left", Boolean(item.left));
    made.item = item;
    return made;
  }
}

const sizeOf = (scroll) => `${scroll.clientHeight} ${scroll.scrollHeight}`;
const fromEnd = (scroll) => scroll.scrollHeight - scroll.scrollTop;

const MAKERS = {
  message(first, me, act) {
    const mine = first.by === me;
    const state = make("small", { className: "state" });
    const again = make("button", { type: "button", textContent: "Send again" });
    const who = make("small", { className: "who", textContent: mine ? "you" : first.by });
    const node = make(
      "li",
      { className: mine ? "mine" : "theirs" },
      who,
      said("p", first.text, "text"),
      state,
      again,
    );
    return {
      node,
      update(item) {
        again.hidden = !mine || !["returned", "failed"].includes(item.state);
        again.onclick = () => act.again(item);
        show(state, messageState(item));
        node.dataset.state = item.state;
      },
    };
  },
  answer(first, me, act) {
    const text = said("p", "", "text");
    const cut = make("small", { className: "state", textContent: "cut off" });
    const again = rerun(act);
    const node = make("li", { className: "answer" }, text, cut, again.node);
    return {
      node,
      update(item) {
        again.update(item);
        show(text, item.text);
        cut.hidden = !item.cut;
        // Read out when it is complete, not in pieces.
        node.ariaBusy = String(item.live);
      },
    };
  },
  call(first) {
    const outcome = make("small", { className: "state" });
    const args = said("pre", "");
    const result = said("pre", "");
    const title = make("summary", {}, said("code", first.tool), outcome);
    const details = make(
      "details",
      {},
      title,
      make("h3", { textContent: "Arguments" }),
      args,
      make("h3", { textContent: "Result" }),
      result,
    );
    return {
      node: make("li", { className: "call" }, details),
      update(item) {
        show(outcome, OUTCOMES[item.outcome] ?? item.outcome ?? progress(item));
        show(args, typeof item.args === "string" ? item.args : json(item.args));
        const told = item.error ?? item.result;
        show(result, typeof told === "string" ? told : json(told));
        details.dataset.outcome = item.outcome ?? "running";
      },
    };
  },
  request: (first, me, act) => card(first, act.answer),
  note(first, me, act) {
    const text = said("p", first.text);
    const again = rerun(act);
    return {
      node: make("li", { className: `note ${first.tone}` }, text, again.node),
      update(item) {
        again.update(item);
        show(text, item.text);
      },
    };
  },
  left() {
    return {
      node: make("li", { className: "note", textContent: "left out of the conversation" }),
      update() {},
    };
  },
};

/** A button to run a run again, at the end of it; it shows while nothing runs. */
function rerun(act) {
  const title = "Answer once more from where this run began; what came since is left out of the conversation.";
  const node = make("button", { type: "button", className: "rerun", textContent: "Run again", title });
  return {
    node,
    update({ ends }) {
      node.hidden = !ends;
      node.onclick = async () => {
        node.disabled = true;
        await act.rerun(ends);
        node.disabled = false;
      };
    },
  };
}

function messageState({ state, disposition, reason }) {
  if (state === "returned") return `not read (${reason || "the run was stopped"})`;
  if (state === "delivered") return disposition === "started" || disposition === "replied" ? "" : "read";
  const told = DISPOSITIONS[state] ?? DISPOSITIONS[disposition] ?? "";
  return reason ? `${told}: ${reason}` : told;
}

function progress({ progress }) {
  if (!progress) return "running";
  const { done, total } = progress;
  return Number.isFinite(done) && Number.isFinite(total) ? `running, ${done} of ${total}` : "running";
}
