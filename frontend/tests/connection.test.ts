import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { reconnectDelay } from '../src/lib/protocol/backoff';
import { Connection, type ConnectionState } from '../src/lib/protocol/connection';
import type { ServerMessage, Welcome } from '../src/lib/protocol/messages';

class FakeSocket {
  readyState = 0;
  sent: Record<string, unknown>[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;

  send(frame: string) {
    this.sent.push(JSON.parse(frame));
  }

  close() {
    this.readyState = 3;
  }

  opened() {
    this.readyState = 1;
    this.onopen?.();
  }

  says(message: object) {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
}

const welcome = { type: 'welcome', version: 1, tenant: { id: 't' }, tenants: [], member: { id: 'm' }, model: null };

let sockets: FakeSocket[];
let states: ConnectionState[];
let received: ServerMessage[];
let welcomes: Welcome[];
let connection: Connection;

const socket = () => sockets.at(-1)!;
const state = () => states.at(-1)!;

beforeEach(() => {
  vi.useFakeTimers();
  sockets = [];
  states = [];
  received = [];
  welcomes = [];
  connection = new Connection({
    url: () => 'ws://pagoda.example/ws/v1',
    tenant: () => 'acme',
    onState: (next) => states.push(next),
    onWelcome: (message) => welcomes.push(message),
    onMessage: (message) => received.push(message),
    open: () => {
      sockets.push(new FakeSocket());
      return socket() as unknown as WebSocket;
    },
    random: () => 0.5,
  });
  connection.start();
});

afterEach(() => {
  connection.stop();
  vi.useRealTimers();
});

function welcomed() {
  socket().opened();
  socket().says(welcome);
}

describe('the connection', () => {
  it('says hello with its tenant, and is open with the welcome', () => {
    socket().opened();
    expect(socket().sent).toEqual([{ type: 'hello', version: 1, tenant: 'acme' }]);
    expect(state().kind).toBe('connecting');
    socket().says(welcome);
    expect(state().kind).toBe('open');
    expect(welcomes).toHaveLength(1);
  });

  it('sends nothing before the welcome', () => {
    socket().opened();
    expect(connection.send({ type: 'ping' })).toBe(false);
  });

  it('comes back after a loss, later after each failure, and at once early again after a success', () => {
    welcomed();
    const delays: number[] = [];
    for (let attempt = 0; attempt < 4; attempt += 1) {
      socket().onclose?.({ code: 1006 });
      const waiting = state();
      if (waiting.kind !== 'waiting') throw new Error(waiting.kind);
      delays.push(waiting.retryAt - Date.now());
      vi.advanceTimersByTime(delays.at(-1)!);
    }
    expect(delays).toEqual([...delays].sort((a, b) => a - b));
    expect(new Set(delays).size).toBe(4);
    welcomed();
    socket().onclose?.({ code: 1012 });
    const waiting = state();
    expect(waiting.kind === 'waiting' && waiting.retryAt - Date.now()).toBe(delays[0]);
  });

  it.each([
    [4401, 'signed_out'],
    [4403, 'forbidden'],
    [4400, 'unsupported'],
  ])('ends with close code %i: %s', (code, reason) => {
    socket().opened();
    socket().onclose?.({ code });
    expect(state()).toEqual({ kind: 'ended', reason });
    vi.advanceTimersByTime(600_000);
    expect(sockets).toHaveLength(1);
  });

  it('notices a dead socket by a missing pong', () => {
    welcomed();
    vi.advanceTimersByTime(25_000);
    expect(socket().sent.at(-1)).toEqual({ type: 'ping' });
    vi.advanceTimersByTime(8_000);
    expect(state().kind).toBe('waiting');
  });

  it('stays while the server answers', () => {
    welcomed();
    for (let round = 0; round < 5; round += 1) {
      vi.advanceTimersByTime(25_000);
      socket().says({ type: 'pong' });
    }
    expect(state().kind).toBe('open');
    expect(received).toEqual([]);
  });

  it('gives up on a server that does not welcome', () => {
    socket().opened();
    vi.advanceTimersByTime(15_000);
    expect(state().kind).toBe('waiting');
  });

  it('connects at once when the network comes back', () => {
    socket().onclose?.({ code: 1006 });
    window.dispatchEvent(new Event('online'));
    expect(sockets).toHaveLength(2);
  });

  it('survives frames it does not understand', () => {
    welcomed();
    socket().onmessage?.({ data: 'not json' });
    socket().onmessage?.({ data: '[]' });
    expect(state().kind).toBe('open');
  });
});

describe('the delay before a new attempt', () => {
  it('grows to half a minute and is spread', () => {
    expect(reconnectDelay(0, () => 0)).toBe(200);
    expect(reconnectDelay(0, () => 1)).toBe(500);
    expect(reconnectDelay(3, () => 1)).toBe(4000);
    expect(reconnectDelay(99, () => 1)).toBe(30_000);
  });
});
