import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ChatSession } from '../src/lib/chat/session.svelte';
import type { Conversation, Message } from '../src/lib/protocol/messages';

type Frame = Record<string, unknown> & { type: string; request_id?: string };

class FakeSocket {
  static all: FakeSocket[] = [];
  readyState = 1;
  sent: Frame[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;

  constructor() {
    FakeSocket.all.push(this);
  }

  send(frame: string) {
    this.sent.push(JSON.parse(frame));
  }

  close() {
    this.readyState = 3;
  }

  says(message: object) {
    this.onmessage?.({ data: JSON.stringify(message) });
  }

  last(type: string): Frame | undefined {
    return this.sent.findLast((frame) => frame.type === type);
  }
}

const tenant = { id: 't1', slug: 'acme', name: 'Acme' };
const ada = { id: 'ada', email: 'ada@acme.example', name: 'Ada', role: 'member' };
const conversation: Conversation = { id: 'c1', title: '', created: '2026-01-01', updated: '2026-01-01' };

function message(id: string, parent: string | null, extra: Partial<Message>): Message {
  return {
    ...{ id, conversation_id: 'c1', parent_id: parent, role: 'user', content: '', created: '2026-01-01' },
    ...{ state: 'complete', generation: null, finish_reason: null, usage: null },
    ...extra,
  };
}

const question = message('u1', null, { content: 'Hi' });

function answer(content: string, seq: number, extra: Partial<Message> = {}): Message {
  const generation = { id: 'g1', seq, offset: 0 };
  return message('a1', 'u1', { role: 'assistant', state: 'streaming', content, generation, ...extra });
}

const ids = { generation_id: 'g1', message_id: 'a1' };
const delta = (seq: number, text: string) => ({ type: 'generation.delta', ...ids, seq, text });
const started = { type: 'generation.started', ...ids, seq: 1, prompt_tokens: 9, cached_tokens: 0 };
const finished = (seq: number) => ({
  ...{ type: 'generation.finished', ...ids, seq, state: 'complete', finish_reason: 'stop' },
  ...{ usage: null, error: null },
});

let session: ChatSession;

const socket = () => FakeSocket.all.at(-1)!;
const settle = () => vi.advanceTimersByTimeAsync(20);

async function connect(member = ada) {
  socket().onopen?.();
  socket().says({ type: 'welcome', version: 1, tenant, tenants: [tenant], member, model: null });
  await settle();
}

async function loseConnection() {
  socket().onclose?.({ code: 1006 });
  await vi.advanceTimersByTimeAsync(60_000);
}

async function opened(messages: Message[]) {
  const request = socket().last('conversation.open');
  socket().says({ type: 'conversation.opened', conversation, messages, request_id: request?.request_id });
  await settle();
}

async function ask(): Promise<string> {
  session.send('Hi');
  const clientId = String(socket().last('message.create')?.client_id);
  const rows = { conversation, user_message: question, assistant_message: answer('', 0), generation_id: 'g1' };
  socket().says({ type: 'message.created', client_id: clientId, repeated: false, ...rows });
  await settle();
  return clientId;
}

const text = () => session.tree?.path.at(-1)?.view.content;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal('WebSocket', FakeSocket);
  FakeSocket.all = [];
  sessionStorage.clear();
  localStorage.clear();
  history.replaceState(null, '', '/');
  session = new ChatSession({ ws_path: '/ws/v1' });
  session.start();
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

describe('a question', () => {
  it('starts a conversation with its own address and streams its answer', async () => {
    await connect();
    await ask();
    expect(location.pathname).toBe('/c/c1');
    for (const event of [started, delta(2, 'Hel'), delta(3, 'lo'), finished(4)]) socket().says(event);
    await settle();
    expect(text()).toBe('Hello');
    expect(session.tree?.streaming).toBeNull();
    expect(session.outbox).toEqual([]);
  });

  it('written offline goes out once there is a connection, and again when the answer to it was lost', async () => {
    session.send('Hi');
    await connect();
    const first = socket().last('message.create');
    await loseConnection();
    await connect();
    expect(socket().last('message.create')).toEqual(first);
    expect(session.outbox).toHaveLength(1);
  });

  it('follows the branch that is shown, and an edit stands beside the question', async () => {
    await connect();
    await ask();
    for (const event of [started, finished(2)]) socket().says(event);
    await settle();
    session.send('And then?');
    expect(socket().last('message.create')).toMatchObject({ conversation_id: 'c1', parent_id: 'a1' });
    session.send('Hello', session.tree!.path[0]!);
    expect(socket().last('message.create')).toMatchObject({ conversation_id: 'c1', parent_id: null });
  });

  it('that is refused waits with the reason', async () => {
    await connect();
    session.send('Hi');
    const clientId = socket().last('message.create')?.client_id;
    socket().says({ type: 'error', code: 'unavailable', message: 'No engine.', client_id: clientId });
    expect(session.outbox[0]?.error?.code).toBe('unavailable');
    expect(session.notice).toBeNull();
  });

  it('tells whether there is an engine, whatever the welcome said', async () => {
    await connect();
    expect(session.engineAway).toBe(true);
    await ask();
    expect(session.engineAway).toBe(false);
    session.send('And then?');
    const clientId = socket().last('message.create')?.client_id;
    socket().says({ type: 'error', code: 'unavailable', message: 'No engine.', client_id: clientId });
    expect(session.engineAway).toBe(true);
  });
});

describe('an answer', () => {
  it('survives a lost connection: the conversation is opened again and nothing is doubled', async () => {
    await connect();
    await ask();
    for (const event of [started, delta(2, 'one '), delta(3, 'two ')]) socket().says(event);
    await loseConnection();
    await connect();
    await opened([question, answer('one ', 2)]);
    for (const event of [delta(3, 'two '), delta(4, 'three'), finished(5)]) socket().says(event);
    await settle();
    expect(text()).toBe('one two three');
  });

  it('that ended while the connection was lost is complete afterwards', async () => {
    await connect();
    await ask();
    for (const event of [started, delta(2, 'one ')]) socket().says(event);
    await loseConnection();
    await connect();
    await opened([question, answer('one two', 4, { state: 'complete', finish_reason: 'stop' })]);
    expect(text()).toBe('one two');
    expect(session.tree?.streaming).toBeNull();
  });

  it('with a hole is attached again, once', async () => {
    await connect();
    await ask();
    for (const event of [started, delta(2, 'one '), delta(4, 'three'), delta(5, '!')]) socket().says(event);
    const attaches = socket().sent.filter((frame) => frame.type === 'generation.attach');
    expect(attaches).toEqual([{ type: 'generation.attach', generation_id: 'g1', after_seq: 2 }]);
    for (const event of [delta(3, 'two '), delta(4, 'three'), delta(5, '!')]) socket().says(event);
    await settle();
    expect(text()).toBe('one two three!');
  });

  it('that another tab continues is found by opening the conversation again', async () => {
    await connect();
    await ask();
    for (const event of [started, finished(2)]) socket().says(event);
    socket().says({ ...delta(1, 'x'), generation_id: 'g2' });
    await vi.advanceTimersByTimeAsync(1000);
    expect(socket().last('conversation.open')).toMatchObject({ conversation_id: 'c1' });
  });

  it('is stopped by its generation', async () => {
    await connect();
    await ask();
    session.stop(session.tree!.streaming!);
    expect(socket().last('generation.stop')).toMatchObject({ generation_id: 'g1' });
    expect(session.tree!.streaming!.stopping).toBe(true);
  });
});

describe('the sidebar', () => {
  it('takes titles and deletions that happen elsewhere', async () => {
    await connect();
    await ask();
    socket().says({ type: 'conversation.changed', conversation: { ...conversation, title: 'Greetings' } });
    expect(session.list.items.map((item) => item.title)).toEqual(['Greetings']);
    expect(session.tree?.conversation?.title).toBe('Greetings');
    socket().says({ type: 'conversation.deleted', conversation_id: 'c1' });
    expect(session.list.items).toEqual([]);
    expect(location.pathname).toBe('/');
  });

  it('opens the shown conversation again for new messages, and not for a new title', async () => {
    await connect();
    await ask();
    const opens = () => socket().sent.filter((frame) => frame.type === 'conversation.open').length;
    const before = opens();
    const retitled = { ...conversation, title: 'Greetings' };
    socket().says({ type: 'conversation.changed', conversation: retitled });
    await vi.advanceTimersByTimeAsync(1000);
    expect(opens()).toBe(before);
    socket().says({ type: 'conversation.changed', conversation: { ...retitled, updated: '2026-01-02' } });
    await vi.advanceTimersByTimeAsync(1000);
    expect(opens()).toBe(before + 1);
    socket().says({ type: 'conversation.changed', conversation: { ...retitled, title: 'Hi', updated: '2026-01-03' } });
    await vi.advanceTimersByTimeAsync(1000);
    expect(opens()).toBe(before + 2);
  });

  it('shows an address that leads nowhere as missing', async () => {
    await connect();
    session.go('nowhere');
    const { request_id } = socket().last('conversation.open')!;
    socket().says({ type: 'error', code: 'not_found', message: 'No such conversation.', request_id });
    await settle();
    expect(session.tree?.status).toBe('missing');
  });
});

describe('another tenant', () => {
  it('is asked for by name, and nothing of the first one stays', async () => {
    await connect();
    await ask();
    session.switchTenant('rival');
    socket().onopen?.();
    expect(socket().last('hello')).toMatchObject({ tenant: 'rival' });
    expect(session.list.items).toEqual([]);
    expect(session.tree).toBeNull();
  });

  it('that is closed to the member falls back to the first, once', async () => {
    localStorage.setItem('pagoda.tenant', 'gone');
    socket().onopen?.();
    socket().onclose?.({ code: 4403 });
    expect(FakeSocket.all).toHaveLength(2);
    socket().onopen?.();
    expect(socket().last('hello')).not.toHaveProperty('tenant');
    socket().onclose?.({ code: 4403 });
    expect(session.connection).toEqual({ kind: 'ended', reason: 'forbidden' });
  });
});
