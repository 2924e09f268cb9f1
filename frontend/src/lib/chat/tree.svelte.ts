/** A conversation that was opened: its messages, and which branch is shown. */
import type { Conversation, Message } from '../protocol/messages';
import { Branches, choose } from './branches';
import { ChatMessage } from './message.svelte';

export type TreeStatus = 'loading' | 'ready' | 'missing';

export class ConversationTree {
  readonly id: string;
  status = $state<TreeStatus>('loading');
  conversation = $state.raw<Conversation | null>(null);
  #messages = $state.raw<ReadonlyMap<string, ChatMessage>>(new Map());
  #chosen = $state.raw<ReadonlyMap<string, string>>(new Map());
  #branches = $derived(new Branches(this.#messages));
  path: ChatMessage[] = $derived(this.#branches.path(this.#chosen));

  /** The answer of the shown branch that is being written. */
  streaming: ChatMessage | null = $derived(this.path.findLast((message) => message.view.state === 'streaming') ?? null);

  constructor(id: string) {
    this.id = id;
  }

  get messages(): Iterable<ChatMessage> {
    return this.#messages.values();
  }

  message(id: string): ChatMessage | undefined {
    return this.#messages.get(id);
  }

  siblings(message: ChatMessage): readonly ChatMessage[] {
    return this.#branches.siblings(message);
  }

  /** Takes messages as the server told them; what is already here keeps its identity. */
  merge(messages: readonly Message[]): void {
    const next = new Map(this.#messages);
    for (const message of messages) {
      const known = next.get(message.id);
      if (known) known.merge(message);
      else next.set(message.id, new ChatMessage(message));
    }
    if (next.size !== this.#messages.size) this.#messages = next;
  }

  show(messageId: string): void {
    this.#chosen = choose(this.#messages, this.#chosen, messageId);
  }
}
