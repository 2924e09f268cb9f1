// Conversations and generations in memory, with the guarantees of docs/websocket.md: contiguous seq, a stored text that
// lags behind the events, idempotent client_id.
import { randomUUID } from 'node:crypto';
import { answerTo, tokensOf } from './fake-answers.mjs';

const STORE_EVERY = 10;

export class Refusal extends Error {
  constructor(code, message, field = null) {
    super(message);
    Object.assign(this, { code, field });
  }
}

export class FakeChat {
  conversations = new Map();
  messages = new Map();
  generations = new Map();
  #created = new Map();
  #clock = 0;

  constructor({ tokenMs = 25, tell = () => {} } = {}) {
    this.tokenMs = tokenMs;
    this.tell = tell;
  }

  now(daysAgo = 0) {
    this.#clock += 1;
    return new Date(Date.now() - daysAgo * 86_400_000 + this.#clock).toISOString();
  }

  addConversation(title = '', daysAgo = 0) {
    const time = this.now(daysAgo);
    const conversation = { id: randomUUID(), title, created: time, updated: time };
    this.conversations.set(conversation.id, conversation);
    return conversation;
  }

  addMessage(conversation, parentId, role, content, extra = {}) {
    const message = {
      ...{ id: randomUUID(), conversation_id: conversation.id, parent_id: parentId, role, content },
      ...{ created: this.now(), state: 'complete', generation: null, finish_reason: null, usage: null, error: null },
      ...extra,
    };
    this.messages.set(message.id, message);
    return message;
  }

  conversation(id) {
    const found = this.conversations.get(id);
    if (!found) throw new Refusal('not_found', 'No such conversation in this tenant.', 'conversation_id');
    return found;
  }

  answer(id) {
    const found = this.messages.get(id);
    if (found?.role !== 'assistant') throw new Refusal('not_found', 'No such answer.', 'message_id');
    if (found.state === 'streaming') throw new Refusal('conflict', 'This answer is still being written.');
    return found;
  }

  page(before, limit = 50) {
    const all = [...this.conversations.values()].sort((a, b) => (a.updated < b.updated ? 1 : -1));
    const rest = before ? all.filter((conversation) => conversation.updated < before) : all;
    const conversations = rest.slice(0, limit);
    return { conversations, next: rest.length > limit ? conversations.at(-1).updated : null };
  }

  messagesOf(conversation) {
    return [...this.messages.values()].filter((message) => message.conversation_id === conversation.id);
  }

  submit(request) {
    const before = this.#created.get(request.client_id);
    if (before) return { ...before, repeated: true };
    const created = { client_id: request.client_id, repeated: false, ...this.#carryOut(request) };
    this.#created.set(request.client_id, created);
    this.tell({ type: 'conversation.changed', conversation: created.conversation });
    return created;
  }

  #carryOut(request) {
    if (request.type === 'message.create') {
      if (request.content.startsWith('/refuse')) throw new Refusal('unavailable', 'No engine can be reached now.');
      const conversation = request.conversation_id
        ? this.conversation(request.conversation_id)
        : this.addConversation();
      const user = this.addMessage(conversation, request.parent_id, 'user', request.content);
      const assistant = this.addMessage(conversation, user.id, 'assistant', '');
      return this.#begin(conversation, user, assistant, request.content);
    }
    const answer = this.answer(request.message_id);
    const conversation = this.conversation(answer.conversation_id);
    const question = this.messages.get(answer.parent_id).content;
    if (request.type === 'message.continue') return this.#begin(conversation, null, answer, question);
    const sibling = this.addMessage(conversation, answer.parent_id, 'assistant', '');
    return this.#begin(conversation, null, sibling, question);
  }

  #begin(conversation, user, assistant, question) {
    const generation = new FakeGeneration(this, assistant, question);
    this.generations.set(generation.id, generation);
    conversation.updated = this.now();
    if (!conversation.title) {
      setTimeout(() => {
        conversation.title = question.split('\n')[0].slice(0, 48);
        this.tell({ type: 'conversation.changed', conversation: { ...conversation } });
      }, 1500);
    }
    return {
      ...{ conversation: { ...conversation }, user_message: user, assistant_message: structuredClone(assistant) },
      generation_id: generation.id,
    };
  }
}

export class FakeGeneration {
  id = randomUUID();
  events = [];
  followers = new Set();
  text = '';

  constructor(chat, message, question) {
    Object.assign(this, { chat, message, question });
    this.offset = message.content.length;
    const whole = answerTo(question);
    this.tokens = tokensOf(this.offset < whole.length ? whole.slice(this.offset) : ` …${whole}`);
    this.promptTokens = 24 + tokensOf(question).length;
    this.cachedTokens = Math.floor((this.promptTokens * 0.7) / 16) * 16;
    message.state = 'streaming';
    message.generation = { id: this.id, seq: 0, offset: this.offset };
    this.timer = setTimeout(() => this.#start(), 350);
  }

  #emit(event) {
    const whole = { ...event, generation_id: this.id, message_id: this.message.id, seq: this.events.length + 1 };
    this.events.push(whole);
    for (const follower of this.followers) follower(whole);
  }

  #start() {
    this.started = Date.now();
    this.#emit({ type: 'generation.started', prompt_tokens: this.promptTokens, cached_tokens: this.cachedTokens });
    this.timer = setInterval(() => this.#step(), this.chat.tokenMs);
  }

  #step() {
    const piece = this.tokens.shift();
    if (piece === undefined) return this.finish('complete', 'stop');
    if (this.question.startsWith('/length') && this.events.length > 30) return this.finish('complete', 'length');
    if (this.question.startsWith('/fail') && this.events.length > 5) {
      return this.finish('failed', 'error', { code: 'internal', message: 'The engine refused: out of blocks.' });
    }
    if (this.question.startsWith('/interrupt') && this.offset === 0 && this.events.length > 35) return this.interrupt();
    this.text += piece;
    this.#emit({ type: 'generation.delta', text: piece });
    if (this.events.length % STORE_EVERY === 0) this.#store();
  }

  #store() {
    this.message.content = this.message.content.slice(0, this.offset) + this.text;
    this.message.generation.seq = this.events.length;
  }

  usage() {
    const decode = (Date.now() - (this.started ?? Date.now())) / 1000;
    return {
      ...{ prompt_tokens: this.promptTokens, cached_tokens: this.cachedTokens },
      ...{ output_tokens: Math.max(0, this.events.length - 1), queued_s: 0.01, prefill_s: 0.08, decode_s: decode },
      blocks_freed: 3 + Math.ceil(this.events.length / 16),
    };
  }

  finish(state, reason, error = null) {
    clearInterval(this.timer);
    this.#store();
    const usage = this.usage();
    Object.assign(this.message, { state, finish_reason: reason, usage, error });
    this.#emit({ type: 'generation.finished', state, finish_reason: reason, usage, error });
    this.message.generation.seq = this.events.length;
  }

  /** The engine died: what was not stored is lost. */
  interrupt() {
    clearInterval(this.timer);
    const { seq } = this.message.generation;
    const text = this.message.content.slice(this.offset);
    Object.assign(this.message, { state: 'interrupted' });
    const common = { generation_id: this.id, message_id: this.message.id, seq };
    const ending = [
      { ...common, type: 'generation.snapshot', text },
      { ...common, type: 'generation.finished', state: 'interrupted', finish_reason: null, usage: null, error: null },
    ];
    for (const event of ending) for (const follower of this.followers) follower(event);
    this.ending = ending;
  }

  /** Sends what follows `afterSeq`, older text as a snapshot, and then what comes. */
  follow(afterSeq, send) {
    if (this.ending) return this.ending.forEach(send);
    const stored = this.message.generation.seq;
    let from = afterSeq;
    if (from < stored) {
      from = Math.min(stored, this.events.length);
      const text = this.message.content.slice(this.offset);
      send({ type: 'generation.snapshot', generation_id: this.id, message_id: this.message.id, seq: from, text });
    }
    for (const event of this.events.slice(from)) send(event);
    const last = this.events.at(-1);
    if (from >= this.events.length && last?.type === 'generation.finished') send(last);
    if (this.message.state === 'streaming') this.followers.add(send);
  }
}
