/** One websocket that keeps itself open: hello, welcome, ping, and a new attempt after every loss worth retrying. */
import { reconnectDelay } from './backoff';
import { parseServerMessage, PROTOCOL_VERSION, type ClientMessage, type ServerMessage, type Welcome } from './messages';

export type EndReason = 'signed_out' | 'forbidden' | 'unsupported';

export type ConnectionState =
  | { kind: 'connecting' }
  | { kind: 'open' }
  /** Lost; the next attempt starts at `retryAt` (ms since the epoch). */
  | { kind: 'waiting'; attempt: number; retryAt: number }
  /** Trying again would change nothing. */
  | { kind: 'ended'; reason: EndReason };

export interface ConnectionOptions {
  url: () => string;
  /** The slug of the tenant to work in, or null for the first. */
  tenant: () => string | null;
  onState: (state: ConnectionState) => void;
  onWelcome: (welcome: Welcome) => void;
  onMessage: (message: ServerMessage) => void;
  open?: (url: string) => WebSocket;
  random?: () => number;
}

const WELCOME_WITHIN_MS = 15_000;
const PING_EVERY_MS = 25_000;
const PONG_WITHIN_MS = 8_000;

/** The end that a close code means, or null when connecting again may help. */
export function endReason(code: number): EndReason | null {
  if (code === 4401) return 'signed_out';
  if (code === 4403) return 'forbidden';
  if (code === 4400) return 'unsupported';
  return null;
}

export class Connection {
  #options: ConnectionOptions;
  #socket: WebSocket | null = null;
  #state: ConnectionState = { kind: 'connecting' };
  #attempt = 0;
  #deadline: ReturnType<typeof setTimeout> | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #ping: ReturnType<typeof setInterval> | undefined;

  constructor(options: ConnectionOptions) {
    this.#options = options;
  }

  get state(): ConnectionState {
    return this.#state;
  }

  start(): void {
    window.addEventListener('online', this.#wake);
    document.addEventListener('visibilitychange', this.#wake);
    this.#connect();
  }

  stop(): void {
    window.removeEventListener('online', this.#wake);
    document.removeEventListener('visibilitychange', this.#wake);
    this.#drop();
  }

  /** Connects now: the person asked, or the tenant changed. */
  reconnect(): void {
    this.#attempt = 0;
    this.#drop();
    this.#connect();
  }

  /** False when the message was not handed to an open socket. */
  send(message: ClientMessage & { request_id?: string }): boolean {
    if (this.#state.kind !== 'open' || this.#socket?.readyState !== 1) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  #connect(): void {
    this.#setState({ kind: 'connecting' });
    const socket = (this.#options.open ?? ((url) => new WebSocket(url)))(this.#options.url());
    this.#socket = socket;
    this.#expect(WELCOME_WITHIN_MS);
    socket.onopen = () => {
      const tenant = this.#options.tenant();
      socket.send(JSON.stringify({ type: 'hello', version: PROTOCOL_VERSION, ...(tenant ? { tenant } : {}) }));
    };
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onclose = (event) => this.#closed(event.code);
  }

  #receive(frame: unknown): void {
    const message = parseServerMessage(frame);
    if (message === null) return;
    if (message.type === 'welcome') {
      this.#attempt = 0;
      clearTimeout(this.#deadline);
      this.#ping = setInterval(() => this.#probe(), PING_EVERY_MS);
      this.#setState({ kind: 'open' });
      this.#options.onWelcome(message);
      return;
    }
    // Anything at all shows that the socket lives.
    if (this.#state.kind === 'open') clearTimeout(this.#deadline);
    if (message.type !== 'pong') this.#options.onMessage(message);
  }

  #probe(): void {
    if (this.send({ type: 'ping' })) this.#expect(PONG_WITHIN_MS);
  }

  #expect(within: number): void {
    clearTimeout(this.#deadline);
    this.#deadline = setTimeout(() => this.#closed(1006), within);
  }

  #closed(code: number): void {
    this.#drop();
    const reason = endReason(code);
    if (reason !== null) {
      this.#setState({ kind: 'ended', reason });
      return;
    }
    const delay = reconnectDelay(this.#attempt, this.#options.random);
    this.#setState({ kind: 'waiting', attempt: this.#attempt + 1, retryAt: Date.now() + delay });
    this.#attempt += 1;
    this.#retry = setTimeout(() => this.#connect(), delay);
  }

  #drop(): void {
    clearTimeout(this.#deadline);
    clearTimeout(this.#retry);
    clearInterval(this.#ping);
    const socket = this.#socket;
    this.#socket = null;
    if (socket === null) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  /** The network came back or the page is looked at again: do not sit out a delay, and notice a dead socket soon. */
  #wake = (): void => {
    if (document.visibilityState === 'hidden') return;
    if (this.#state.kind === 'waiting') this.reconnect();
    else if (this.#state.kind === 'open') this.#probe();
  };

  #setState(state: ConnectionState): void {
    this.#state = state;
    this.#options.onState(state);
  }
}
