// The WebSocket: connects again by itself, watches one thread from where it was, and asks again what was not answered.

import { read } from "./json.js";

const FIRST_DELAY_MS = 500;
const DELAY_MAX_MS = 15_000;
const LOOK_EVERY_MS = 10_000;
const CONNECT_WITHIN_MS = 10_000;
const ANSWER_WITHIN_MS = 5_000;
const FINAL_CODES = [1003, 1008];
const WHO_CODES = [4401, 4408];

/** A key that makes repeating a call harmless; crypto.randomUUID exists only over https and on this machine. */
export function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}

/** An id for a thread, so that even its first message may be sent again; those made later are higher. */
export function newThreadId() {
  const time = Date.now().toString(16).padStart(12, "0");
  const key = newKey();
  return `${time.slice(0, 8)}-${time.slice(8)}-7${key.slice(0, 3)}-8${key.slice(3, 6)}-${key.slice(6, 18)}`;
}

/** A message of the server, or null if it is none. */
export function parsed(text) {
  try {
    const message = read(text);
    return typeof message === "object" ? message : null;
  } catch {
    return null;
  }
}

export class Connection {
  #tell;
  #socket = null;
  #token = null;
  #ready = false;
  #lastId = 0;
  #asked = new Map();
  #watched = null;
  #failures = 0;
  #retry = 0;
  #heardAt = 0;

  /** `tell` has: link(state, seconds), introduced(principal), frame(frame), refusedWatch(error), whoAreYou(why). */
  constructor(url, tell) {
    this.url = url;
    this.#tell = tell;
    setInterval(() => this.#look(), LOOK_EVERY_MS);
  }

  connect(token = this.#token) {
    this.#token = token;
    clearTimeout(this.#retry);
    this.#drop();
    this.#tell.link("connecting");
    const socket = new WebSocket(this.url, ["threadhold.v1"]);
    this.#socket = socket;
    // A socket that was given up says nothing any more.
    const current = (handle) => (event) => socket === this.#socket && handle(event);
    socket.onopen = current(() =>
      this.#write({ id: 0, op: "auth", ...(this.#token && { token: this.#token }) }),
    );
    socket.onmessage = current(({ data }) => this.#take(parsed(data)));
    socket.onclose = current(({ code }) => this.#closed(code));
    // Where packets vanish a browser would wait for minutes.
    setTimeout(() => socket === this.#socket && !this.#ready && this.#closed(1006), CONNECT_WITHIN_MS);
  }

  /** Ask, again after each new connection, until there is an answer. Rejects with the server's {code, message}. */
  ask(op) {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#asked.set(id, { op: { id, ...op }, resolve, reject });
      if (this.#ready) this.#write({ id, ...op });
    });
  }

  /** Watch this thread and no other. `after` returns the cursor to go on from. */
  watch(thread, after) {
    if (this.#watched && this.#ready) this.#write({ op: "unwatch", thread: this.#watched.thread });
    this.#watched = thread === null ? null : { thread, after, id: null, begun: false };
    this.#watch();
  }

  /** Make sure that the other side is there, as after a sleep or a change of networks. */
  probe() {
    if (this.#retry) return this.connect();
    if (!this.#ready) return;
    const since = performance.now();
    const socket = this.#socket;
    this.#write({ op: "ping" });
    setTimeout(
      () => socket === this.#socket && this.#heardAt < since && this.#closed(1006),
      ANSWER_WITHIN_MS,
    );
  }

  #look() {
    if (document.visibilityState === "visible" && !this.#retry) this.probe();
  }

  #drop() {
    this.#socket?.close();
    this.#socket = null;
    this.#ready = false;
    this.#retry = 0;
  }

  #write(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  #watch() {
    const watched = this.#watched;
    if (!watched || !this.#ready) return;
    watched.id = ++this.#lastId;
    watched.begun = false;
    this.#write({ id: watched.id, op: "watch", thread: watched.thread, after: watched.after() ?? "start" });
  }

  #take(message) {
    this.#heardAt = performance.now();
    if (message?.op === "result") this.#answered(message);
    if (message?.op === "frame" && this.#watched?.begun && message.thread === this.#watched.thread) {
      this.#tell.frame(message);
    }
    if (message?.op === "watch_ended" && message.thread === this.#watched?.thread)
      this.#watchFailed(message.error);
  }

  #answered({ id, ok, result, error }) {
    if (!this.#ready) {
      if (ok) this.#introduced(result);
      else this.#unknown(error?.message);
    } else if (id !== null && id === this.#watched?.id) {
      if (ok) this.#watched.begun = true;
      else this.#watchFailed(error);
    } else if (this.#asked.has(id)) {
      const { resolve, reject } = this.#asked.get(id);
      this.#asked.delete(id);
      if (ok) resolve(result);
      else reject(error ?? { message: "refused" });
    }
  }

  #introduced(result) {
    this.#ready = true;
    this.#failures = 0;
    this.#tell.introduced(result?.principal);
    this.#tell.link("connected");
    for (const { op } of this.#asked.values()) this.#write(op);
    this.#watch();
  }

  #unknown(why) {
    this.#drop();
    this.#tell.link("refused");
    this.#tell.whoAreYou(this.#token ? why : "");
  }

  #watchFailed(error) {
    const watched = this.#watched;
    watched.begun = false;
    if (error?.retryable) setTimeout(() => watched === this.#watched && this.#watch(), 1000);
    else this.#tell.refusedWatch(error ?? { message: "the watch ended" });
  }

  #closed(code) {
    this.#drop();
    if (WHO_CODES.includes(code)) return this.#unknown("the server does not know you any more");
    if (FINAL_CODES.includes(code)) return this.#tell.link("refused");
    // Jitter, so that all pages of a replica that went away do not come back at once.
    const delay = Math.min(DELAY_MAX_MS, FIRST_DELAY_MS * 2 ** this.#failures++) * (0.5 + Math.random() / 2);
    this.#retry = setTimeout(() => this.connect(), delay);
    this.#tell.link("waiting", Math.ceil(delay / 1000));
  }
}
