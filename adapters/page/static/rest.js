// The few calls that are not for the WebSocket.

export class Rest {
  token = null;

  /** Returns the body of the answer. Rejects with {status, message}. */
  async call(method, path, body) {
    const headers = { Accept: "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    if (body) headers["Content-Type"] = "application/json";
    const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
    const told = await answer.json().catch(() => null);
    if (answer.ok && told !== null) return told;
    throw { status: answer.status, message: told?.detail ?? `the server answered ${answer.status}` };
  }

  agents = () => this.call("GET", "v1/agents");
  threads = (cursor) =>
    this.call("GET", `v1/threads?limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
  name = (id, title) => this.call("PATCH", `v1/threads/${encodeURIComponent(id)}`, { title });
}
