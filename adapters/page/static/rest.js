// The few calls that are not for the WebSocket.

export class Rest {
  token = null;

  /** Returns the body of the answer. Rejects with {status, message}. */
  async call(method, path, body, key) {
    const headers = { Accept: "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    if (body) headers["Content-Type"] = "application/json";
    if (key) headers["Idempotency-Key"] = key;
    const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
    const told = await answer.json().catch(() => null);
    if (answer.ok && told !== null) return told;
    throw { status: answer.status, message: told?.detail ?? `the server answered ${answer.status}` };
  }

  agents = () => this.call("GET", "v1/agents");
  threads = (cursor) =>
    this.call("GET", `v1/threads?limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
  checkpoint = (id) => this.call("GET", `v1/checkpoints/${encodeURIComponent(id)}`);
  replay = (run, key) => this.call("POST", `v1/runs/${encodeURIComponent(run)}/replay`, null, key);
  name = (id, title) => this.call("PATCH", `v1/threads/${encodeURIComponent(id)}`, { title });
}
