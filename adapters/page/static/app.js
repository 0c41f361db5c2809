// The page: what is shown, where it comes from, and what a person can do with it.

import { Connection, newKey, newThreadId } from "./connection.js";
import { make } from "./elements.js";
import { EMPTY, fold, open, placed, unseen } from "./folding.js";
import { Log } from "./log.js";
import { unplaced } from "./replays.js";
import { Rest } from "./rest.js";
import { Threads } from "./threads.js";

const TITLE_CHARS = 80;
const AGAIN_MS = 2_000;
const LIST_EVERY_MS = 15_000;
// A run is run again from here at most once: its end is left out of the conversation from then on.
const RERUN_KEY = "chat page";

const at = (id) => document.getElementById(id);
const rest = new Rest();
const threads = new Threads({ list: at("threads"), more: at("more") }, rest);
const connection = new Connection(new URL("v1/ws", document.baseURI.replace(/^http/, "ws")), {
  link: showLink,
  introduced,
  frame: take,
  refusedWatch: ({ message }) => alarm(message),
  whoAreYou,
});
const log = new Log(
  { scroll: at("scroll"), list: at("log"), earlier: at("earlier"), dropped: at("dropped") },
  { answer, again: ({ text, key }) => (forget(key), send(text, key)), rerun },
);

let thread = null; // the one that is shown
let unborn = true; // whether it has no message yet, so that the server does not know it
let conversation = EMPTY;
let sent = []; // what was sent from here and has not come back: {key, thread, text, after, message, error}
let me = null;
const agentsKnown = Promise.withResolvers();
let drawing = false;
let placing = null; // the checkpoint whose place in the log is asked for

// What comes in

function take(frame) {
  const reset = frame.kind === "gap" && frame.data?.reason === "reset";
  if (reset && conversation.items.length) return enter(thread); // the log is of another life
  const before = conversation.state;
  conversation = fold(conversation, frame);
  if (before !== conversation.state) list();
  draw();
}

function introduced(principal) {
  me = principal;
  start();
}

async function start() {
  at("identity").close();
  list();
  try {
    const { items } = await rest.agents();
    const chosen = at("agent").value;
    at("agent").replaceChildren(
      ...items.map((name) => make("option", { textContent: name, selected: name === chosen })),
    );
    agentsKnown.resolve();
    draw();
  } catch {
    setTimeout(start, AGAIN_MS);
  }
}

function enter(id) {
  unborn = id === null;
  thread = id ?? newThreadId();
  conversation = EMPTY;
  log.clear();
  connection.watch(unborn ? null : thread, () => conversation.cursor);
  draw();
}

/** Ask for the place of the checkpoint that says what is left out now. In a burst of replays that is the last one. */
async function place() {
  const checkpoint = unplaced(conversation.replays);
  if (checkpoint === null || placing === checkpoint) return;
  placing = checkpoint;
  const found = await rest.checkpoint(checkpoint).catch(({ status }) => ({ gone: status === 404 }));
  placing = null;
  if (found.seq === undefined && !found.gone) return setTimeout(draw, AGAIN_MS);
  // Of one that is not there any more nobody knows what it leaves out.
  conversation = placed(conversation, checkpoint, found.seq ?? Infinity);
  draw();
}

// What is shown

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const mine = sent.filter((message) => message.thread === thread);
    const waiting = unseen(mine, conversation.items, me);
    sent = sent.filter((message) => message.thread !== thread || waiting.includes(message));
    drawControls();
    place();
    log.draw([...conversation.items, ...waiting.map((message) => message.item)], conversation.dropped, me);
  });
}

function drawControls() {
  const { state, stopping } = conversation;
  at("log").dataset.state = state;
  at("working").hidden = state !== "busy";
  at("stop").hidden = state === "idle";
  at("stop").disabled = stopping;
  at("stop").textContent = stopping ? "Stopping" : "Stop";
  at("onbusy").hidden = state !== "busy";
  at("choose").hidden = !unborn || at("agent").length < 2;
  at("text").placeholder = hint();
}

function hint() {
  if (open(conversation).some((request) => request.kind === "approval"))
    return "Message (denies what it asks to do)";
  return conversation.state === "paused" ? "Answer" : "Message";
}

function showLink(state, seconds) {
  const told = { connecting: "connecting", connected: "connected", refused: "not connected" };
  at("link").textContent = told[state] ?? `offline, next try in ${seconds} s`;
  at("link").dataset.state = state;
}

function alarm(message) {
  at("alert").textContent = message ?? "";
  at("alert").hidden = !message;
}

async function list() {
  try {
    const found = await threads.load(thread);
    at("title").textContent = unborn ? "New chat" : (found ?? "Chat");
  } catch (error) {
    if (error.status === 401) whoAreYou(rest.token ? error.message : "");
  }
}

function whoAreYou(why) {
  at("identity-why").textContent = why || "This server wants a token.";
  if (!at("identity").open) at("identity").showModal();
}

// What a person does

async function send(text, key = newKey(), on_busy = "steer") {
  const first = unborn;
  const after = conversation.items.findLast((item) => item.seq)?.seq ?? 0;
  const message = { key, thread, text, after };
  const told = (state, reason) => {
    message.item = { id: `sent ${key}`, type: "message", by: me, text, key, state, reason };
    draw();
  };
  sent.push(message);
  told("sending");
  try {
    const agent = first ? await agentsKnown.promise.then(() => at("agent").value) : undefined;
    const receipt = await connection.ask({
      op: "send",
      thread: message.thread,
      agent,
      content: text,
      key,
      on_busy,
    });
    message.message = receipt.message;
    told(receipt.disposition, receipt.no_worker ? "no worker has this agent now" : "");
    begun(message.thread, receipt.seq === 1 && text);
  } catch (error) {
    told("failed", error.message);
  }
}

/** A thread has a message now: name it after its first one, and watch it if it is the one that is shown. */
function begun(id, first) {
  if (first) name(id, first.trim().slice(0, TITLE_CHARS).toWellFormed());
  if (id !== thread || !unborn) return;
  unborn = false;
  history.replaceState(null, "", `#${id}`);
  connection.watch(id, () => conversation.cursor);
}

/** A thread without a name is none the worse. */
const name = (id, title) => rest.name(id, title).then(list, list);

const forget = (key) => (sent = sent.filter((message) => message.key !== key));

function answer({ request, args_hash }, decision) {
  return connection.ask({ op: "answer", request, decision: { ...decision, args_hash } });
}

async function rerun(run) {
  alarm();
  try {
    const { no_worker } = await rest.replay(run, RERUN_KEY);
    if (no_worker) alarm("no worker has this agent now");
  } catch (error) {
    alarm(error.message);
  }
}

async function stop() {
  conversation = { ...conversation, stopping: true };
  draw();
  await connection.ask({ op: "stop", thread, key: newKey(), wait: 0 }).catch(({ message }) => {
    conversation = { ...conversation, stopping: false };
    alarm(message);
  });
}

function submit(event) {
  event?.preventDefault();
  const text = at("text").value;
  if (!text.trim()) return;
  at("text").value = "";
  alarm();
  log.toEnd();
  send(text, newKey(), at("onbusy").hidden ? "steer" : at("onbusy").value);
  at("onbusy").value = "steer";
}

function typed(event) {
  // On a phone Enter makes a line, as its keyboard has nothing else to make one with.
  const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing;
  if (sends && !matchMedia("(pointer: coarse)").matches) submit(event);
}

function menu(opened) {
  document.body.classList.toggle("menu", opened);
  at("menu").ariaExpanded = String(opened);
}

function route() {
  const hash = location.hash.slice(1);
  const id = hash && hash !== "new" ? hash : null;
  menu(false);
  alarm();
  if (id === null || id !== thread) enter(id);
  list();
  if (!matchMedia("(pointer: coarse)").matches) at("text").focus();
}

function identify(event) {
  event.preventDefault();
  rest.token = at("token").value.trim();
  at("token").value = "";
  connection.connect(rest.token);
}

at("composer").onsubmit = submit;
at("text").onkeydown = typed;
at("stop").onclick = stop;
at("menu").onclick = () => menu(!document.body.classList.contains("menu"));
at("more").onclick = () => (threads.widen(), list());
at("identity-form").onsubmit = identify;
window.onhashchange = route;
window.ononline = window.onoffline = window.onpageshow = () => connection.probe();
document.onvisibilitychange = () => document.hidden || (connection.probe(), list());
setInterval(() => document.hidden || list(), LIST_EVERY_MS);
route();
connection.connect();
