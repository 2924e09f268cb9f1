/** The conversations of the sidebar, newest first, page by page. */
import type { Conversation, ConversationPage } from '../protocol/messages';

export class ConversationList {
  items = $state.raw<readonly Conversation[]>([]);
  /** Where the next page starts; null when everything is here. */
  next = $state.raw<string | null>(null);
  loaded = $state(false);

  addPage(page: ConversationPage): void {
    this.#merge(page.conversations);
    this.next = page.next;
    this.loaded = true;
  }

  /** The first page again: what is as new as it and not in it has been deleted meanwhile. */
  refresh(page: ConversationPage): void {
    const oldest = page.next === null ? '' : (page.conversations.at(-1)?.updated ?? '');
    this.items = this.items.filter((conversation) => conversation.updated < oldest);
    this.#merge(page.conversations);
    if (!this.loaded || page.next === null) this.next = page.next;
    this.loaded = true;
  }

  upsert(conversation: Conversation): void {
    this.#merge([conversation]);
  }

  remove(id: string): void {
    this.items = this.items.filter((conversation) => conversation.id !== id);
  }

  clear(): void {
    this.items = [];
    this.next = null;
    this.loaded = false;
  }

  #merge(conversations: readonly Conversation[]): void {
    const byId = new Map(this.items.map((conversation) => [conversation.id, conversation]));
    for (const conversation of conversations) byId.set(conversation.id, conversation);
    this.items = [...byId.values()].sort((one, other) => (one.updated < other.updated ? 1 : -1));
  }
}
