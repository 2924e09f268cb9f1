/** Questions and answers over the socket, matched by request_id. */
import type { ClientMessage, ServerError, ServerMessage } from './messages';

export class RequestRefused extends Error {
  constructor(readonly reason: ServerError) {
    super(reason.message);
  }
}

/** The connection went away, or stayed silent, before the answer came. */
export class RequestLost extends Error {}

interface Waiting {
  resolve: (answer: ServerMessage) => void;
  reject: (error: Error) => void;
  timer: ReturnType<typeof setTimeout>;
}

const ANSWER_WITHIN_MS = 20_000;

export class Requests {
  #send: (message: ClientMessage & { request_id: string }) => boolean;
  #waiting = new Map<string, Waiting>();
  #count = 0;

  constructor(send: (message: ClientMessage & { request_id: string }) => boolean) {
    this.#send = send;
  }

  /** Resolves with the answer; rejects with RequestRefused (the server said no) or RequestLost. */
  ask<T extends ServerMessage>(message: ClientMessage): Promise<T> {
    this.#count += 1;
    const id = `r${this.#count}`;
    return new Promise<T>((resolve, reject) => {
      const timer = setTimeout(() => this.#settle(id)?.reject(new RequestLost('no answer')), ANSWER_WITHIN_MS);
      this.#waiting.set(id, { resolve: resolve as (answer: ServerMessage) => void, reject, timer });
      if (!this.#send({ ...message, request_id: id })) this.#settle(id)?.reject(new RequestLost('not connected'));
    });
  }

  /** Takes an answer; false when nobody asked for it. */
  answer(message: ServerMessage): boolean {
    const id = 'request_id' in message ? message.request_id : null;
    const waiting = id ? this.#settle(id) : undefined;
    if (waiting === undefined) return false;
    if (message.type === 'error') waiting.reject(new RequestRefused(message));
    else waiting.resolve(message);
    return true;
  }

  abandon(): void {
    for (const id of [...this.#waiting.keys()]) this.#settle(id)?.reject(new RequestLost('connection lost'));
  }

  #settle(id: string): Waiting | undefined {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return undefined;
    clearTimeout(waiting.timer);
    this.#waiting.delete(id);
    return waiting;
  }
}
