/** The chat of one signed-in member: the connection, the conversations, and what is on its way. */
import { socketUrl, type Boot } from '../../boot';
import { Connection, type ConnectionState } from '../protocol/connection';
import {
  isGenerationEvent,
  type Conversation,
  type ConversationOpened,
  type ConversationPage,
  type Creation,
  type GenerationEvent,
  type Member,
  type MessageCreated,
  type ServerError,
  type ServerMessage,
  type Tenant,
  type Welcome,
} from '../protocol/messages';
import { newClientId, Outbox, type OutboxEntry } from '../protocol/outbox';
import { RequestRefused, Requests } from '../protocol/requests';
import { forgetDrafts, moveNewDraft } from './drafts';
import { FrameQueue } from './frames';
import { ConversationList } from './list.svelte';
import type { ChatMessage } from './message.svelte';
import { Route } from './route.svelte';
import { ConversationTree } from './tree.svelte';

const TREES_KEPT = 12;
const REOPEN_AFTER_MS = 300;
const TENANT_KEY = 'pagoda.tenant';

export class ChatSession {
  readonly boot: Boot;
  readonly list = new ConversationList();
  readonly route: Route;
  connection = $state.raw<ConnectionState>({ kind: 'connecting' });
  welcome = $state.raw<Welcome | null>(null);
  outbox = $state.raw<readonly OutboxEntry[]>([]);
  tree = $state.raw<ConversationTree | null>(null);
  /** A refusal that belongs to no message; shown until dismissed. */
  notice = $state.raw<ServerError | null>(null);
  /** The answer that ended last, for those who listen instead of looking. */
  lastFinished = $state.raw<ChatMessage | null>(null);
  /** What the server said last about there being an engine. */
  engineAway = $state(false);

  #connection: Connection;
  #requests: Requests;
  #outbox: Outbox;
  #frames = new FrameQueue();
  #trees = new Map<string, ConversationTree>();
  #reopening = new Map<string, ReturnType<typeof setTimeout>>();
  #listing = false;

  constructor(boot: Boot) {
    this.boot = boot;
    this.#connection = new Connection({
      url: () => socketUrl(boot.ws_path),
      tenant: () => stored(TENANT_KEY),
      onState: (state) => this.#stateChanged(state),
      onWelcome: (welcome) => this.#welcomed(welcome),
      onMessage: (message) => this.#received(message),
    });
    this.#requests = new Requests((message) => this.#connection.send(message));
    this.#outbox = new Outbox(
      (message) => this.#connection.send(message),
      (entries) => (this.outbox = entries),
    );
    this.route = new Route((id) => this.#show(id));
    this.#show(this.route.conversationId);
  }

  get member(): Member | null {
    return this.welcome?.member ?? this.boot.member ?? null;
  }

  get tenant(): Tenant | null {
    return this.welcome?.tenant ?? this.boot.tenant ?? null;
  }

  get online(): boolean {
    return this.connection.kind === 'open';
  }

  start(): void {
    this.#connection.start();
  }

  reconnect(): void {
    this.#connection.reconnect();
  }

  // What the person does -------------------------------------------------------------------------------------------

  go(conversationId: string | null): void {
    this.notice = null;
    this.route.go(conversationId);
    this.#show(conversationId);
  }

  /** Sends a message after the last one shown, or in place of `instead` (an edit: a new branch beside it). */
  send(content: string, instead: ChatMessage | null = null): void {
    const tree = this.tree;
    const parentId = instead ? instead.parentId : (tree?.path.at(-1)?.id ?? null);
    const conversationId = tree?.id ?? null;
    this.#create({
      ...{ type: 'message.create', client_id: newClientId(), content },
      ...{ conversation_id: conversationId, parent_id: parentId },
    });
  }

  regenerate(message: ChatMessage): void {
    this.#create({ type: 'message.regenerate', client_id: newClientId(), message_id: message.id });
  }

  continue(message: ChatMessage): void {
    this.#create({ type: 'message.continue', client_id: newClientId(), message_id: message.id });
  }

  stop(message: ChatMessage): void {
    const generation = message.progress?.id;
    if (generation && this.#connection.send({ type: 'generation.stop', generation_id: generation })) {
      message.stopping = true;
    }
  }

  retry(entry: OutboxEntry): void {
    this.#outbox.retry(entry.creation.client_id);
  }

  discard(entry: OutboxEntry): void {
    this.#outbox.discard(entry.creation.client_id);
  }

  async rename(conversationId: string, title: string): Promise<void> {
    await this.#ask({ type: 'conversation.rename', conversation_id: conversationId, title });
  }

  async delete(conversationId: string): Promise<void> {
    await this.#ask({ type: 'conversation.delete', conversation_id: conversationId });
  }

  async listMore(): Promise<void> {
    const before = this.list.next;
    if (before === null || this.#listing) return;
    this.#listing = true;
    try {
      this.list.addPage(await this.#requests.ask<ConversationPage>({ type: 'conversation.list', before }));
    } catch {
      // The list stays as it is; scrolling or the next connection asks again.
    } finally {
      this.#listing = false;
    }
  }

  switchTenant(slug: string): void {
    localStorage.setItem(TENANT_KEY, slug);
    this.#trees.clear();
    this.list.clear();
    this.welcome = null;
    this.go(null);
    this.#connection.reconnect();
  }

  /** What this browser keeps for the member must not meet the next one. */
  forget(): void {
    forgetDrafts();
    for (const entry of this.outbox) this.discard(entry);
    localStorage.removeItem(TENANT_KEY);
  }

  // What the server says -------------------------------------------------------------------------------------------

  #stateChanged(state: ConnectionState): void {
    const lost = this.connection.kind === 'open' && state.kind !== 'open';
    this.connection = state;
    if (lost) {
      this.#outbox.closed();
      this.#requests.abandon();
    }
    // The tenant that was worked in last is gone: try the member's first one.
    if (state.kind === 'ended' && state.reason === 'forbidden' && stored(TENANT_KEY) !== null) {
      localStorage.removeItem(TENANT_KEY);
      this.#connection.reconnect();
    }
  }

  #welcomed(welcome: Welcome): void {
    const other = this.welcome !== null && this.welcome.tenant.id !== welcome.tenant.id;
    if (other) this.#trees.clear();
    this.welcome = welcome;
    this.engineAway = welcome.model === null;
    if (this.tree) void this.#open(this.tree);
    for (const tree of this.#trees.values()) if (tree !== this.tree) this.#attachAll(tree);
    this.#outbox.opened(`${welcome.tenant.id}/${welcome.member.id}`);
    void this.#refreshList();
  }

  #received(message: ServerMessage): void {
    if (isGenerationEvent(message)) return this.#generationEvent(message);
    if (message.type === 'message.created') return this.#created(message);
    if (message.type === 'error') return this.#refused(message);
    this.#requests.answer(message);
    if (message.type === 'conversation.changed') {
      this.list.upsert(message.conversation);
      const tree = this.#trees.get(message.conversation.id);
      if (!tree) return;
      const retitled = onlyRetitled(tree.conversation, message.conversation);
      tree.conversation = message.conversation;
      if (!retitled) this.#reopen(tree);
    } else if (message.type === 'conversation.deleted') {
      this.#forgetConversation(message.conversation_id);
    }
  }

  #generationEvent(event: GenerationEvent): void {
    for (const tree of this.#trees.values()) {
      const message = tree.message(event.message_id);
      if (message) return this.#applyEvent(tree, message, event);
    }
  }

  #applyEvent(tree: ConversationTree, message: ChatMessage, event: GenerationEvent): void {
    // A generation this page has not heard of (continued in another tab): the stored message names it.
    if (message.progress?.id !== event.generation_id) return this.#reopen(tree);
    const outcome = message.apply(event);
    if (outcome === 'attach') this.#attach(message);
    else if (outcome === 'reopen') this.#reopen(tree);
    else if (outcome === 'applied' && event.type === 'generation.delta') this.#frames.add(message);
    else if (outcome === 'applied') message.publish();
    if (outcome === 'applied' && event.type === 'generation.finished' && tree === this.tree)
      this.lastFinished = message;
  }

  #attach(message: ChatMessage, again = false): void {
    if (message.progress === null || (message.attaching && !again)) return;
    const { id, seq } = message.progress;
    message.attaching = this.#connection.send({ type: 'generation.attach', generation_id: id, after_seq: seq });
  }

  #attachAll(tree: ConversationTree): void {
    for (const message of tree.messages) if (message.view.state === 'streaming') this.#attach(message, true);
  }

  #created(created: MessageCreated): void {
    const entry = this.#outbox.confirmed(created);
    // A repeated one was made earlier and tells nothing about now.
    if (!created.repeated) this.engineAway = false;
    const id = created.conversation.id;
    this.list.upsert(created.conversation);
    const known = this.#trees.get(id);
    const tree = known ?? this.#keep(new ConversationTree(id));
    tree.conversation = created.conversation;
    tree.merge(created.user_message ? [created.user_message, created.assistant_message] : [created.assistant_message]);
    tree.show(created.assistant_message.id);
    if (entry?.conversationId === null && this.route.conversationId === null) {
      moveNewDraft(this.member?.id ?? '', id);
      this.route.go(id, true);
      this.tree = tree;
    }
    if (!known && created.repeated) void this.#open(tree);
    else if (!known) tree.status = 'ready';
  }

  #refused(error: ServerError): void {
    if (this.#requests.answer(error)) return;
    if (this.#outbox.refused(error)) {
      if (error.code === 'unavailable') this.engineAway = true;
      return;
    }
    for (const tree of error.generation_id ? this.#trees.values() : []) {
      for (const message of tree.messages) {
        if (message.progress?.id !== error.generation_id) continue;
        message.stopping = message.attaching = false;
        return this.#reopen(tree);
      }
    }
    this.notice = error;
  }

  // Conversations --------------------------------------------------------------------------------------------------

  #show(id: string | null): void {
    const tree = id === null ? null : (this.#trees.get(id) ?? this.#keep(new ConversationTree(id)));
    this.tree = tree;
    if (tree && this.online) void this.#open(tree);
  }

  #keep(tree: ConversationTree): ConversationTree {
    this.#trees.set(tree.id, tree);
    for (const [id, old] of this.#trees) {
      if (this.#trees.size <= TREES_KEPT) break;
      if (old === this.tree || old === tree) continue;
      this.#trees.delete(id);
      for (const { view, progress } of old.messages) {
        if (view.state !== 'streaming' || !progress) continue;
        this.#connection.send({ type: 'generation.detach', generation_id: progress.id });
      }
    }
    return tree;
  }

  async #open(tree: ConversationTree): Promise<void> {
    try {
      const opened = await this.#requests.ask<ConversationOpened>({
        ...{ type: 'conversation.open', conversation_id: tree.id },
      });
      tree.conversation = opened.conversation;
      tree.merge(opened.messages);
      tree.status = 'ready';
    } catch (error) {
      if (!(error instanceof RequestRefused)) return;
      // An address that somebody typed need not even have the form of an id.
      if (error.reason.code === 'not_found' || error.reason.field === 'conversation_id') {
        this.#trees.delete(tree.id);
        tree.status = 'missing';
      } else this.notice = error.reason;
    }
  }

  /** Soon, and once for a burst of hints. */
  #reopen(tree: ConversationTree): void {
    if (this.#reopening.has(tree.id)) return;
    const run = () => {
      this.#reopening.delete(tree.id);
      if (this.online && this.#trees.get(tree.id) === tree) void this.#open(tree);
    };
    this.#reopening.set(tree.id, setTimeout(run, REOPEN_AFTER_MS));
  }

  #forgetConversation(id: string): void {
    this.list.remove(id);
    this.#trees.delete(id);
    if (this.route.conversationId === id) this.go(null);
  }

  async #refreshList(): Promise<void> {
    try {
      this.list.refresh(await this.#requests.ask<ConversationPage>({ type: 'conversation.list' }));
    } catch {
      // The connection went away again; the next welcome asks again.
    }
  }

  #create(creation: Creation): void {
    this.#outbox.add(creation, this.tree?.id ?? null);
  }

  async #ask(message: Parameters<Requests['ask']>[0]): Promise<void> {
    try {
      await this.#requests.ask(message);
    } catch (error) {
      if (error instanceof RequestRefused) this.notice = error.reason;
      else this.notice = { type: 'error', code: 'offline', message: '' };
    }
  }
}

/** A new title and nothing else: every message that comes or ends moves `updated`. */
function onlyRetitled(shown: Conversation | null, told: Conversation): boolean {
  return shown !== null && shown.title !== told.title && shown.updated === told.updated;
}

function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}
