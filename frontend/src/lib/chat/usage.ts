/** What the numbers of an answer say. */
import type { Usage } from '../protocol/messages';

/** The engine did nothing for it: no prompt was read and no token written. */
export function isEmpty(usage: Usage): boolean {
  return usage.prompt_tokens === 0 && usage.output_tokens === 0;
}

/** Tokens a second while decoding, rounded; null when there is nothing to divide. */
export function tokensPerSecond(usage: Usage): number | null {
  if (!usage.decode_s || usage.decode_s <= 0 || usage.output_tokens < 2) return null;
  const rate = usage.output_tokens / usage.decode_s;
  return rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate);
}

/** Seconds of prefill that the cache spared, at the rate at which the rest of the prompt was read; null when unknown. */
export function savedSeconds(usage: Usage): number | null {
  const computed = usage.prompt_tokens - usage.cached_tokens;
  if (!usage.prefill_s || usage.cached_tokens === 0 || computed <= 0) return null;
  return (usage.prefill_s / computed) * usage.cached_tokens;
}
