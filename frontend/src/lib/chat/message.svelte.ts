/** One message as the page shows it. Only what streams is reactive, and it changes at most once per frame. */
import { apply, merge, progressOf, type GenerationProgress, type Outcome } from '../protocol/generation';
import type { ErrorBody, FinishReason, GenerationEvent, Message, MessageState, Usage } from '../protocol/messages';

export interface MessageView {
  readonly content: string;
  readonly state: MessageState;
  readonly finishReason: FinishReason | null;
  readonly usage: Usage | null;
  readonly error: ErrorBody | string | null;
  readonly prompt: { tokens: number; cached: number } | null;
}

export class ChatMessage {
  readonly id: string;
  readonly conversationId: string;
  readonly parentId: string | null;
  readonly role: 'user' | 'assistant';
  readonly created: string;
  view: MessageView = $state.raw(EMPTY);
  /** Stop was pressed and the receipt has not come yet. */
  stopping = $state(false);
  /** An attach was sent and nothing of it has arrived: do not ask again for each event out of order. */
  attaching = false;
  #progress: GenerationProgress | null = null;
  #stored: Message;

  constructor(message: Message) {
    this.id = message.id;
    this.conversationId = message.conversation_id;
    this.parentId = message.parent_id;
    this.role = message.role;
    this.created = message.created;
    this.#stored = message;
    this.#progress = progressOf(message);
    this.publish();
  }

  get progress(): GenerationProgress | null {
    return this.#progress;
  }

  /** The server told the whole message again. */
  merge(message: Message): void {
    const known = this.#progress;
    this.#stored = message;
    this.#progress = merge(known, progressOf(message));
    this.attaching = false;
    this.publish();
  }

  apply(event: GenerationEvent): Outcome {
    if (this.#progress === null || this.#progress.id !== event.generation_id) return 'ignored';
    const { progress, outcome } = apply(this.#progress, event);
    this.#progress = progress;
    if (outcome === 'applied') this.attaching = false;
    return outcome;
  }

  publish(): void {
    const view = this.#current();
    // The whole conversation is told again now and then: what did not change is not rendered again.
    if (JSON.stringify(view) !== JSON.stringify(this.view)) this.view = view;
    if (view.state !== 'streaming') this.stopping = false;
  }

  #current(): MessageView {
    const progress = this.#progress;
    if (progress === null) {
      const { content, state, finish_reason: finishReason, usage, error } = this.#stored;
      return { content, state, finishReason, usage, error: error ?? null, prompt: null };
    }
    const { prefix, text, state, finishReason, usage, error, prompt } = progress;
    return { content: prefix + text, state, finishReason, usage, error, prompt };
  }
}

const EMPTY: MessageView = {
  ...{ content: '', state: 'complete', finishReason: null, usage: null, error: null, prompt: null },
};
