/** Why an answer failed, in the person's language, and what can be done about it. */
import { explain, language } from '../language/language.svelte';
import type { ErrorBody } from '../protocol/messages';

/** The numbers of a limit, in tokens; null for what the engine did not tell. */
export interface Limits {
  readonly needed: number | null;
  readonly limit: number | null;
  /** Requests of the tenant that wait already. */
  readonly waiting: number | null;
}

/** What these say is true of the request itself: sent again unchanged, it fails again. */
const LASTING = ['kv_limit_exceeded', 'context_length_exceeded', 'invalid_request'];

type Failure = ErrorBody | string | null;

export function explainFailure(error: Failure): string {
  const { text, code } = language;
  if (error === null) return text.failed;
  // The words of the server are English.
  if (typeof error === 'string') return code === 'en' ? `${text.failed} ${error}` : text.failed;
  return text.failures[error.code]?.(limitsOf(error)) ?? explain(error);
}

export function canTryAgain(error: Failure): boolean {
  return !LASTING.includes(codeOf(error));
}

/** Whether what was written can be gone on with: a continuation reads it all again, and then some. */
export function canContinueFailed(content: string, error: Failure): boolean {
  return content !== '' && canTryAgain(error);
}

/** Why a complete answer is shorter than it could be. */
export function explainLength(error: Failure): string {
  const { text } = language;
  if (!endedByTenant(error)) return text.lengthReached;
  return text.tenantLimitReached(limitsOf(error as ErrorBody));
}

/** Whether the tenant's limit ended a complete answer: nothing can go on from there. */
export function endedByTenant(error: Failure): boolean {
  return codeOf(error) === 'kv_limit_exceeded';
}

function codeOf(error: Failure): string {
  return typeof error === 'object' && error !== null ? error.code : '';
}

function limitsOf({ details }: ErrorBody): Limits {
  const number = (name: string) => {
    const value = details?.[name];
    return typeof value === 'number' && Number.isFinite(value) ? value : null;
  };
  const blocks = (name: string) => {
    const [count, size] = [number(name), number('block_size')];
    return count === null || size === null ? null : count * size;
  };
  return {
    needed: blocks('needed_blocks') ?? number('prompt_tokens'),
    limit: blocks('limit_blocks') ?? number('context_length'),
    waiting: number('waiting'),
  };
}
