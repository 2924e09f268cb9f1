/**
 * What the person sent and the server has not confirmed. An entry keeps its client_id for ever, so sending it again after
 * a reconnect or a page reload creates nothing twice. It is kept per tab (sessionStorage) and per member: a message
 * written by one person is never sent in the name of the next one who signs in.
 */
import type { ClientMessage, Creation, MessageCreated, ServerError } from './messages';

export interface OutboxEntry {
  readonly creation: Creation;
  /** The conversation it belongs to; null for the one that it will start. */
  readonly conversationId: string | null;
  /** `<tenant id>/<member id>` of the sender; null until the first welcome told. */
  readonly sender: string | null;
  /** Why the server refused it; such an entry waits for the person. */
  readonly error: ServerError | null;
}

const KEY = 'pagoda.outbox';

export function newClientId(): string {
  return crypto.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), hex).join('');
}

function hex(byte: number): string {
  return byte.toString(16).padStart(2, '0');
}

export class Outbox {
  #entries: readonly OutboxEntry[];
  #sender: string | null = null;
  #open = false;

  constructor(
    private readonly send: (message: ClientMessage) => boolean,
    private readonly onChange: (entries: readonly OutboxEntry[]) => void,
    private readonly storage: Storage | null = browserStorage(),
  ) {
    this.#entries = this.#restore();
    this.onChange(this.#entries);
  }

  get entries(): readonly OutboxEntry[] {
    return this.#entries;
  }

  add(creation: Creation, conversationId: string | null): void {
    this.#set([...this.#entries, { creation, conversationId, sender: this.#sender, error: null }]);
    if (this.#open) this.send(creation);
  }

  /** The connection is usable: send everything that is not confirmed, oldest first. */
  opened(sender: string): void {
    this.#sender = sender;
    this.#open = true;
    const own = this.#entries.filter((entry) => entry.sender === null || entry.sender === sender);
    this.#set(own.map((entry) => ({ ...entry, sender })));
    for (const entry of this.#entries) if (entry.error === null) this.send(entry.creation);
  }

  closed(): void {
    this.#open = false;
  }

  confirmed(created: MessageCreated): OutboxEntry | undefined {
    const entry = this.#find(created.client_id);
    if (entry) this.discard(created.client_id);
    return entry;
  }

  /** False when the error is about none of our entries. */
  refused(error: ServerError): boolean {
    const refused = error.client_id ? this.#find(error.client_id) : undefined;
    if (!refused) return false;
    this.#set(this.#entries.map((entry) => (entry === refused ? { ...entry, error } : entry)));
    return true;
  }

  /** The same rows would be made: the client_id stays. */
  retry(clientId: string): void {
    const again = this.#find(clientId);
    if (!again) return;
    this.#set(this.#entries.map((entry) => (entry === again ? { ...entry, error: null } : entry)));
    if (this.#open) this.send(again.creation);
  }

  discard(clientId: string): void {
    this.#set(this.#entries.filter((entry) => entry.creation.client_id !== clientId));
  }

  #find(clientId: string): OutboxEntry | undefined {
    return this.#entries.find((entry) => entry.creation.client_id === clientId);
  }

  #set(entries: readonly OutboxEntry[]): void {
    this.#entries = entries;
    try {
      // Without a known sender an entry must not outlive the page: somebody else may sign in next.
      const keep = entries.filter((entry) => entry.sender !== null);
      if (keep.length === 0) this.storage?.removeItem(KEY);
      else this.storage?.setItem(KEY, JSON.stringify(keep));
    } catch {
      // Storage is full or forbidden: the entries then live as long as the page.
    }
    this.onChange(entries);
  }

  #restore(): readonly OutboxEntry[] {
    try {
      const stored: unknown = JSON.parse(this.storage?.getItem(KEY) ?? '[]');
      return Array.isArray(stored) ? (stored as OutboxEntry[]) : [];
    } catch {
      return [];
    }
  }
}

function browserStorage(): Storage | null {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}
