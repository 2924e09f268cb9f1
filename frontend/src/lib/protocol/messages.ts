/** The websocket protocol, version 1, as types (docs/websocket.md is the text). */

export const PROTOCOL_VERSION = 1;

export interface Tenant {
  id: string;
  slug: string;
  name: string;
}

export interface Member {
  id: string;
  email: string;
  name: string;
  role: string;
}

export interface Model {
  id: string;
  context_length: number;
}

export interface Conversation {
  id: string;
  /** Empty until one has been made. */
  title: string;
  created: string;
  updated: string;
}

export type MessageState = 'complete' | 'streaming' | 'cancelled' | 'interrupted' | 'failed';
export type FinishReason = 'stop' | 'length' | 'cancelled' | 'error';

export interface Usage {
  prompt_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  /** Times and blocks are null, or not there, where they are not known. */
  queued_s?: number | null;
  prefill_s?: number | null;
  decode_s?: number | null;
  blocks_freed?: number | null;
}

export interface ErrorBody {
  code: string;
  message: string;
  /** The numbers of a limit. */
  details?: Record<string, number | string>;
}

export interface GenerationRef {
  id: string;
  /** The last event stored in `content`. */
  seq: number;
  /** Length, in UTF-16 code units, of what earlier generations of the message wrote. */
  offset: number;
}

export interface Message {
  id: string;
  conversation_id: string;
  parent_id: string | null;
  role: 'user' | 'assistant';
  content: string;
  created: string;
  state: MessageState;
  generation: GenerationRef | null;
  finish_reason: FinishReason | null;
  usage: Usage | null;
  error?: ErrorBody | string | null;
}

export interface Sampling {
  max_tokens?: number;
  temperature?: number;
  top_p?: number;
  seed?: number;
  stop?: string[];
}

// Events of a generation -------------------------------------------------------------------------------------------

interface EventOfGeneration {
  generation_id: string;
  message_id: string;
  seq: number;
}

export interface Snapshot extends EventOfGeneration {
  type: 'generation.snapshot';
  text: string;
}

export interface Started extends EventOfGeneration {
  type: 'generation.started';
  prompt_tokens: number;
  cached_tokens: number;
}

export interface Delta extends EventOfGeneration {
  type: 'generation.delta';
  text: string;
}

export interface Finished extends EventOfGeneration {
  type: 'generation.finished';
  state: MessageState;
  finish_reason: FinishReason | null;
  usage: Usage | null;
  error: ErrorBody | string | null;
}

export type GenerationEvent = Snapshot | Started | Delta | Finished;

// From the server ---------------------------------------------------------------------------------------------------

interface Answer {
  request_id?: string | null;
}

export interface Welcome extends Answer {
  type: 'welcome';
  version: number;
  tenant: Tenant;
  tenants: Tenant[];
  member: Member;
  /** Null while no engine is reachable. */
  model: Model | null;
}

export interface ConversationPage extends Answer {
  type: 'conversation.page';
  conversations: Conversation[];
  next: string | null;
}

export interface ConversationOpened extends Answer {
  type: 'conversation.opened';
  conversation: Conversation;
  messages: Message[];
}

export interface ConversationChanged extends Answer {
  type: 'conversation.changed';
  conversation: Conversation;
}

export interface ConversationDeleted extends Answer {
  type: 'conversation.deleted';
  conversation_id: string;
}

export interface MessageCreated extends Answer {
  type: 'message.created';
  client_id: string;
  repeated: boolean;
  conversation: Conversation;
  user_message: Message | null;
  assistant_message: Message;
  generation_id: string;
}

export interface Stopping extends Answer {
  type: 'generation.stopping';
  generation_id: string;
}

export interface ServerError extends Answer {
  type: 'error';
  client_id?: string | null;
  generation_id?: string | null;
  code: string;
  message: string;
  field?: string | null;
  retry_after_s?: number | null;
}

export interface Pong extends Answer {
  type: 'pong';
}

export type ServerMessage =
  | Welcome
  | ConversationPage
  | ConversationOpened
  | ConversationChanged
  | ConversationDeleted
  | MessageCreated
  | Stopping
  | GenerationEvent
  | ServerError
  | Pong;

// From the client ---------------------------------------------------------------------------------------------------

export interface CreateMessage {
  type: 'message.create';
  client_id: string;
  content: string;
  conversation_id: string | null;
  parent_id: string | null;
  sampling?: Sampling;
}

export interface RegenerateMessage {
  type: 'message.regenerate';
  client_id: string;
  message_id: string;
  sampling?: Sampling;
}

export interface ContinueMessage {
  type: 'message.continue';
  client_id: string;
  message_id: string;
  sampling?: Sampling;
}

/** What creates rows: safe to send again under the same client_id. */
export type Creation = CreateMessage | RegenerateMessage | ContinueMessage;

export type ClientMessage =
  | { type: 'hello'; version: number; tenant?: string }
  | { type: 'ping' }
  | { type: 'conversation.list'; before?: string; limit?: number }
  | { type: 'conversation.open'; conversation_id: string }
  | { type: 'conversation.rename'; conversation_id: string; title: string }
  | { type: 'conversation.delete'; conversation_id: string }
  | { type: 'generation.attach'; generation_id: string; after_seq: number }
  | { type: 'generation.detach'; generation_id: string }
  | { type: 'generation.stop'; generation_id: string }
  | Creation;

/** Parses a frame; null for what this client does not understand (a newer server may say more). */
export function parseServerMessage(frame: unknown): ServerMessage | null {
  if (typeof frame !== 'string') return null;
  try {
    const value: unknown = JSON.parse(frame);
    if (typeof value !== 'object' || value === null) return null;
    return typeof (value as { type?: unknown }).type === 'string' ? (value as ServerMessage) : null;
  } catch {
    return null;
  }
}

export function isGenerationEvent(message: ServerMessage): message is GenerationEvent {
  return (
    message.type === 'generation.snapshot' ||
    message.type === 'generation.started' ||
    message.type === 'generation.delta' ||
    message.type === 'generation.finished'
  );
}
