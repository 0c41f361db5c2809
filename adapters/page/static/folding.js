// Folds the frames of a thread into what a person sees. Pure: a state and a frame in, the next state out.
// An item is the same object for as long as nothing about it changed, so that whoever draws sees what did.

import { marked } from "./replays.js";

export const ITEMS_MAX = 2000;

export const EMPTY = Object.freeze({
  items: [], // {id, type: message | answer | call | request | note | left, at, ...}, oldest first; `at` in the log
  dropped: false, // whether there were older ones
  cursor: null, // where to go on watching
  state: "idle", // idle | busy | paused
  stopping: false,
  live: null, // the response in progress: {id, parts}, its text by part
  lost: false, // some of its text is missing: the whole of it comes with a fact
  answeredSeq: 0, // live text from before this fact is in the fact already
  said: "", // the last complete response of the run
  resumed: false, // somebody answered, so that the next attempt is no news
  made: 0, // items that had no id of their own
  seq: 0, // of the frame that was folded last
  shown: { seq: 0, at: 0 }, // the last delivery: its fact, and where those that were delivered at once stand
  replays: [], // {seq, checkpoint, after}, oldest first; `after` is where the checkpoint is in the log, once it is known
});

/** The state after a frame. What is not a frame changes nothing. */
export function fold(state, frame) {
  if (!isFrame(frame)) return state;
  const next = { ...step({ ...state, seq: frame.seq }, frame), cursor: frame.cursor };
  const surplus = next.items.length - ITEMS_MAX;
  return surplus > 0 ? { ...next, items: next.items.slice(surplus), dropped: true } : next;
}

/** The state once it is known where in the log a checkpoint is. */
export function placed(state, checkpoint, after) {
  const replays = state.replays.map((each) => (each.checkpoint === checkpoint ? { ...each, after } : each));
  return { ...state, replays, items: marked(state.items, replays) };
}

/** The requests that wait for an answer. */
export const open = (state) => state.items.filter((item) => item.type === "request" && item.answer === null);

/** Those of the messages sent from here, oldest first, that the thread has not shown yet. */
export function unseen(sent, items, me) {
  const taken = new Set();
  return sent.filter(({ message, text, after }) => {
    const found = items.find(
      (item) =>
        item.type === "message" &&
        !taken.has(item) &&
        (message ? item.message === message : item.by === me && item.text === text && item.seq > after),
    );
    taken.add(found);
    return !found;
  });
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const string = (value) => (typeof value === "string" ? value : value == null ? "" : JSON.stringify(value));

function isFrame(frame) {
  return (
    isObject(frame) &&
    isObject(frame.data) &&
    typeof frame.kind === "string" &&
    typeof frame.cursor === "string" &&
    Number.isInteger(frame.seq)
  );
}

function step(state, { kind, run, seq, data }) {
  switch (kind) {
    case "fact":
      return FACTS.get(data.fact)?.(state, data, run, seq) ?? state;
    case "event":
      return seq < state.answeredSeq ? state : heard(state, data);
    case "draft":
      return changed(state, callId(run, data.tool_call_id), { progress: data });
    case "gap":
      return data.reason === "pruned" ? { ...state, dropped: true } : { ...state, lost: true };
    case "attempt":
      return withdrawn(state);
    case "head":
    case "end":
      return ["idle", "busy", "paused"].includes(data.state) ? { ...state, state: data.state } : state;
  }
  return state;
}

// Text

function heard(state, { event_kind: kind, index, part, delta }) {
  if (!Number.isInteger(index) || index < 0) return state;
  if (kind === "part_start" && isObject(part)) {
    // A first part starts a response; if one was in progress, the model was asked again.
    const begun = index === 0 ? withdrawn(state) : state;
    return part.part_kind === "text" && !begun.lost ? said(begun, index, string(part.content)) : begun;
  }
  if (kind === "part_delta" && delta?.part_delta_kind === "text" && !state.lost) {
    return said(state, index, (state.live?.parts[index] ?? "") + string(delta.content_delta));
  }
  return state;
}

function said(state, index, text) {
  if (!text && !state.live) return state;
  const parts = { ...state.live?.parts, [index]: text };
  const item = { type: "answer", text: Object.values(parts).join(""), live: true };
  if (state.live) return { ...put(state, { ...item, id: state.live.id }), live: { ...state.live, parts } };
  return { ...add(state, item), live: { id: itemId(state), parts } };
}

/** Without the response in progress: it comes anew, or never. */
function withdrawn(state) {
  const items = state.live ? state.items.filter((item) => item.id !== state.live.id) : state.items;
  return { ...state, items, live: null, lost: false };
}

function modelCalled(state, data, run, seq) {
  const text = string(data.text);
  const answered = { ...state, lost: false, answeredSeq: seq, said: text };
  if (!text) return withdrawn(answered);
  const item = { type: "answer", run, text, live: false, cut: data.state === "interrupted" };
  return {
    ...(state.live ? put(answered, { ...item, id: state.live.id }) : add(answered, item)),
    live: null,
  };
}

// Facts

const FACTS = new Map(
  Object.entries({
    message_accepted(state, { message, by, content, disposition }, run, seq) {
      const item = {
        id: `message ${message}`,
        type: "message",
        message,
        by: string(by),
        text: string(content),
        seq,
      };
      const accepted = put(state, { ...item, disposition, state: "waiting" });
      return disposition === "started" ? { ...accepted, state: "busy" } : accepted;
    },
    message_delivered(state, { message }, run, seq) {
      // What is delivered at once was written down as one, right before.
      const at = state.shown.seq === seq - 1 ? state.shown.at : seq - 1;
      return { ...changed(state, `message ${message}`, { state: "delivered", at }), shown: { seq, at } };
    },
    message_returned: (state, { message, reason }) =>
      changed(state, `message ${message}`, { state: "returned", reason: string(reason) }),
    run_replayed(state, { checkpoint, by }, run, seq) {
      if (typeof checkpoint !== "string") return state;
      const replays = [...state.replays, { seq, checkpoint, after: null }];
      return noted({ ...state, replays, state: "busy" }, `run again by ${string(by)}; the conversation goes on here`);
    },
    run_started: (state) => ({ ...state, state: "busy", stopping: false, said: "", resumed: false }),
    attempt_started(state) {
      const going = { ...state, state: "busy", resumed: false };
      return state.resumed ? going : noted(going, "another worker carries on");
    },
    attempt_closed: (state, data, run, seq) =>
      data.text === "withdrawn" ? { ...withdrawn(state), answeredSeq: seq } : state,
    model_called: modelCalled,
    tool_called: (state, { call_id, tool, args }, run) =>
      put(state, { id: callId(run, call_id), type: "call", tool: string(tool), args, outcome: null }),
    tool_returned(state, { call_id, tool, outcome, result, error }, run) {
      const id = callId(run, call_id);
      // What it asks for follows; it is called again when the run goes on.
      if (outcome === "deferred") return { ...state, items: state.items.filter((item) => item.id !== id) };
      const known = state.items.find((item) => item.id === id) ?? { id, type: "call", tool: string(tool) };
      return put(state, { ...known, outcome: string(outcome ?? "ok"), result, error });
    },
    request_opened: (
      state,
      { request, kind, tool, args, args_hash, metadata, approvers, other_only, expires_at },
    ) =>
      put(state, {
        id: `request ${request}`,
        type: "request",
        request,
        kind: string(kind),
        tool: string(tool),
        args: args ?? {},
        args_hash,
        metadata,
        approvers,
        other_only,
        expires_at,
        answer: null,
      }),
    request_answered(state, data) {
      const answered = changed(state, `request ${data.request}`, { answer: data });
      return { ...answered, resumed: true, state: open(answered).length ? "paused" : "busy" };
    },
    paused: (state) => ({ ...state, state: "paused" }),
    stop_requested: (state) => ({ ...state, stopping: true }),
    run_ended(state, data, run) {
      const told = outcome(withdrawn(state), data, run);
      const items = told.items.map((item) =>
        item.type === "call" && item.outcome === null ? { ...item, outcome: "unknown" } : item,
      );
      return { ...told, items, state: "idle", stopping: false, resumed: false };
    },
    member_changed(state, { member, access, by }) {
      const who = string(member);
      return noted(state, `${string(by)} ${access == null ? `removed ${who}` : `let ${who} ${string(access)}`}`);
    },
  }),
);

/** What the end of a run adds. The last item of it that says something is its end, where it can be run again. */
function outcome(state, { status, reason, output, error }, run) {
  if (status === "stopped") {
    const why = reason && reason !== "person" ? `: ${string(reason)}` : "";
    return noted(state, `stopped${why}`, { ends: run });
  }
  if (status === "failed") {
    const why = string(error?.message || error?.type || "no details");
    return noted(state, `the run failed (${string(reason) || "error"}): ${why}`, { tone: "error", ends: run });
  }
  if (output == null || output === state.said) {
    const last = state.items.findLast((item) => item.type === "answer" && item.run === run);
    return last ? changed(state, last.id, { ends: run }) : state;
  }
  const text = typeof output === "string" ? output : JSON.stringify(output, null, 2);
  return add(state, { type: "answer", run, text, live: false, ends: run });
}

// Items

const callId = (run, call) => `call ${run} ${call}`;

function put(state, item) {
  const index = state.items.findLastIndex((each) => each.id === item.id);
  const told = { at: state.seq, ...item };
  return { ...state, items: index < 0 ? [...state.items, told] : state.items.with(index, told) };
}

function changed(state, id, fields) {
  const item = state.items.findLast((each) => each.id === id);
  return item ? put(state, { ...item, ...fields }) : state;
}

const itemId = (state) => `item ${state.made}`;
const add = (state, item) => put({ ...state, made: state.made + 1 }, { ...item, id: itemId(state) });
const noted = (state, text, more) => add(state, { type: "note", text, tone: "", ...more });
