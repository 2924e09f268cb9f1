/**
 * What a client knows of one generation, and how an event changes it.
 *
 * Deltas are numbered without holes, so `seq` alone decides: an event that was seen is ignored, the next one is applied,
 * and a later one means that something is missing and the generation has to be attached again after `seq`. Two
 * subscriptions of the same generation may therefore interleave in any order without losing or doubling text.
 */
import type { ErrorBody, Finished, FinishReason, GenerationEvent, Message, MessageState, Usage } from './messages';

export interface GenerationProgress {
  readonly id: string;
  /** What earlier generations of the message wrote (before a Continue). */
  readonly prefix: string;
  /** What this generation wrote up to `seq`. */
  readonly text: string;
  readonly seq: number;
  readonly state: MessageState;
  readonly finishReason: FinishReason | null;
  readonly usage: Usage | null;
  readonly error: ErrorBody | string | null;
  /** Prompt and cached tokens, known from the start on. */
  readonly prompt: { tokens: number; cached: number } | null;
  /** A snapshot older than `text`: what the server stored, in case it turns out that the rest is lost for good. */
  readonly stored: { seq: number; text: string } | null;
}

/** `attach`: events are missing, attach after `seq`. `reopen`: only the stored message can tell. */
export type Outcome = 'applied' | 'ignored' | 'attach' | 'reopen';

export interface Step {
  readonly progress: GenerationProgress;
  readonly outcome: Outcome;
}

/** The progress that a stored message implies; null for one that no generation wrote. */
export function progressOf(message: Message): GenerationProgress | null {
  if (message.role !== 'assistant' || message.generation === null) return null;
  const { id, seq, offset } = message.generation;
  return {
    id,
    prefix: message.content.slice(0, offset),
    text: message.content.slice(offset),
    seq,
    state: message.state,
    finishReason: message.finish_reason,
    usage: message.usage,
    error: message.error ?? null,
    prompt: null,
    stored: null,
  };
}

/**
 * Joins what the server stored with what this client already applied. Of the same generation the one that knows more
 * wins: a finished one over a streaming one, then the higher `seq`.
 */
export function merge(known: GenerationProgress | null, stored: GenerationProgress | null): GenerationProgress | null {
  if (known === null || stored === null || known.id !== stored.id) return stored;
  if (stored.state !== 'streaming') return { ...stored, prompt: known.prompt };
  if (known.state !== 'streaming' || known.seq >= stored.seq) return known;
  return { ...stored, prompt: known.prompt };
}

export function apply(progress: GenerationProgress, event: GenerationEvent): Step {
  if (event.generation_id !== progress.id || progress.state !== 'streaming') return { progress, outcome: 'ignored' };
  if (event.type === 'generation.snapshot') return applySnapshot(progress, event.seq, event.text);
  if (event.type === 'generation.finished') return applyFinished(progress, event);
  if (event.seq <= progress.seq) return { progress, outcome: 'ignored' };
  if (event.seq > progress.seq + 1) return { progress, outcome: 'attach' };
  if (event.type === 'generation.started') {
    const prompt = { tokens: event.prompt_tokens, cached: event.cached_tokens };
    return { progress: { ...progress, seq: event.seq, prompt }, outcome: 'applied' };
  }
  return { progress: { ...progress, seq: event.seq, text: progress.text + event.text }, outcome: 'applied' };
}

function applySnapshot(progress: GenerationProgress, seq: number, text: string): Step {
  if (seq < progress.seq) return { progress: { ...progress, stored: { seq, text } }, outcome: 'ignored' };
  return { progress: { ...progress, seq, text, stored: null }, outcome: 'applied' };
}

function applyFinished(progress: GenerationProgress, event: Finished): Step {
  if (event.seq > progress.seq + 1) return { progress, outcome: 'attach' };
  const { seq, state, finish_reason: finishReason, usage, error } = event;
  const ended = { ...progress, seq, state, finishReason, usage, error, stored: null };
  if (event.seq >= progress.seq) return { progress: ended, outcome: 'applied' };
  // The generation broke off before what this client saw was stored: the stored text is the one that will be continued.
  if (progress.stored?.seq === event.seq) {
    return { progress: { ...ended, text: progress.stored.text }, outcome: 'applied' };
  }
  return { progress, outcome: 'reopen' };
}
