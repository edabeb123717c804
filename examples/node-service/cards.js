// Cards are read and written over HTTP, with a token that belongs to this service.

const PATIENCE_MS = 60_000;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export class Cards {
  constructor(url, project, token) {
    this.base = `${url}/v1/projects/${project}/cards/`;
    this.headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  }

  /** The card of this id; null where there is none. */
  async read(id) {
    const answer = await this.#ask(id, {});
    if (answer.status === 404) return null;
    if (!answer.ok) throw new Error(`card ${id} cannot be read (HTTP ${answer.status})`);
    return answer.json();
  }

  /** Writes a result card and gives what is kept: the first one, if there was one. Null where it is not wanted. */
  async write(card) {
    const answer = await this.#ask(card.card_id, { method: "PUT", body: JSON.stringify(card) });
    if (answer.status === 409) return this.read(card.card_id);
    if (answer.status === 404) return null; // the call has ended, or never was
    if (!answer.ok) throw new Error(`card ${card.card_id} cannot be written (HTTP ${answer.status})`);
    return card;
  }

  /** Asks again while the store is away. */
  async #ask(id, request) {
    const end = Date.now() + PATIENCE_MS;
    for (let pause = 100; ; pause = Math.min(pause * 2, 5_000)) {
      try {
        const answer = await fetch(this.base + encodeURIComponent(id), { ...request, headers: this.headers });
        if (answer.status < 500 || Date.now() > end) return answer;
        await answer.arrayBuffer();
      } catch (error) {
        if (Date.now() > end) throw error;
      }
      await sleep(pause);
    }
  }
}
