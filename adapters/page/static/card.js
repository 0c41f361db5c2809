// The card of a request: what a run asks for, and the buttons to decide on it.

import { make, said } from "./elements.js";
import { json, read } from "./json.js";

const WORDS = {
  approve: "allowed",
  edit: "allowed with changes",
  reject: "rejected",
  reply: "answered",
  cancelled: "not asked for any more",
};

/** `answer(item, decision)` resolves once it counts, and rejects with {message}. */
export function card(first, answer) {
  const heading = make("h3", { textContent: first.kind === "approval" ? "May it do this?" : "It asks" });
  const body = make("div");
  const node = make("li", { className: "request" }, heading, ...described(first), body);
  return {
    node,
    update(item) {
      node.dataset.state = item.answer ? "answered" : "open";
      body.replaceChildren(...(item.answer ? decided(item.answer) : [decide(item, answer)]));
    },
  };
}

function described({ kind, tool, args, metadata, approvers, other_only, expires_at }) {
  const question = metadata?.question ?? args?.question;
  const told =
    kind !== "approval" && typeof question === "string"
      ? [said("p", question, "text")]
      : [said("code", tool, "tool"), said("pre", json(args))];
  const terms = [
    approvers?.length && `to be answered by ${approvers.join(", ")}`,
    other_only && "not by who asked for the run",
    expires_at && `until ${new Date(expires_at).toLocaleString()}`,
  ].filter(Boolean);
  return terms.length ? [...told, said("p", terms.join("; "), "note")] : told;
}

function decided({ by, decision, reason, value, args }) {
  const told = value ?? reason ?? args ?? "";
  const line = said("p", `${by} ${WORDS[decision] ?? decision}`, "note");
  return told === "" ? [line] : [line, said("pre", typeof told === "string" ? told : json(told))];
}

function decide(item, answer) {
  const alert = make("p", { className: "alert", role: "alert" });
  const form = make("form");
  const send = async (decision) => {
    form.inert = true;
    try {
      await answer(item, decision());
    } catch (error) {
      alert.textContent = error.message;
    } finally {
      form.inert = false;
    }
  };
  form.onsubmit = (event) => event.preventDefault();
  form.append(...(item.kind === "approval" ? approval(item, send) : reply(send)), alert);
  return form;
}

function approval({ args }, send) {
  const changed = field("textarea", "Arguments", { value: json(args), spellcheck: false, hidden: true });
  const reason = field("input", "Why not (the agent is told)", { type: "text", hidden: true });
  const edit = () => ({ kind: "edit", args: object(changed.value) });
  const reject = () => ({ kind: "reject", ...(reason.value && { reason: reason.value }) });
  return [
    changed,
    reason,
    make(
      "p",
      { className: "buttons" },
      button("Approve", () => send(() => ({ kind: "approve" })), "main"),
      opener(button("Edit"), changed, "Approve with changes", () => send(edit)),
      opener(button("Reject", null, "danger"), reason, "Reject", () => send(reject)),
    ),
  ];
}

function reply(send) {
  const value = field("textarea", "Answer");
  const answer = button("Reply", () => send(() => ({ kind: "reply", value: value.value })), "main");
  const decline = button("Decline", () => send(() => ({ kind: "reject" })), "danger");
  return [value, make("p", { className: "buttons" }, answer, decline)];
}

const field = (tag, label, fields) =>
  make(tag, { dir: "auto", placeholder: label, ariaLabel: label, ...fields });

const button = (textContent, onclick = null, className = "") =>
  make("button", { type: "button", textContent, onclick, className });

/** A button whose first press opens a field, and whose second one does something with what is in it. */
function opener(button, field, then, act) {
  button.onclick = () => {
    if (!field.hidden) return act();
    field.hidden = false;
    button.textContent = then;
    field.focus();
    button.form.scrollIntoView({ block: "nearest" });
  };
  return button;
}

function object(text) {
  let value = null;
  try {
    value = read(text);
  } catch (error) {
    throw new Error(`These arguments are not JSON: ${error.message}`);
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new Error("Arguments are a JSON object.");
}
