import { flushSync, mount, unmount } from 'svelte';
import { afterEach, describe, expect, it, vi } from 'vitest';
import AssistantMessage from '../src/components/AssistantMessage.svelte';
import LiveRegion from '../src/components/LiveRegion.svelte';
import { canContinueFailed, canTryAgain, explainFailure } from '../src/lib/chat/failure';
import { ChatMessage } from '../src/lib/chat/message.svelte';
import type { ChatSession } from '../src/lib/chat/session.svelte';
import { isEmpty, tokensPerSecond } from '../src/lib/chat/usage';
import { english } from '../src/lib/language/english';
import { korean } from '../src/lib/language/korean';
import { explain, language } from '../src/lib/language/language.svelte';
import type { ErrorBody, Message, Usage } from '../src/lib/protocol/messages';

const CODES = ['kv_limit_exceeded', 'context_length_exceeded', 'unknown_account', 'queue_full', 'model_error'];
CODES.push('engine_stopping', 'unavailable', 'invalid_request');

const raw = 'Raw words of the engine';
const error = (code: string, details: ErrorBody['details'] = {}): ErrorBody => ({ code, message: raw, details });
const memory = error('kv_limit_exceeded', { needed_blocks: 65, limit_blocks: 32, block_size: 16 });
const nothing: Usage = { prompt_tokens: 0, cached_tokens: 0, output_tokens: 0, decode_s: null };

function answer(extra: Partial<Message>): ChatMessage {
  return new ChatMessage({
    ...{ id: 'a1', conversation_id: 'c1', parent_id: 'u1', role: 'assistant', content: '', created: '2026-01-01' },
    ...{ state: 'failed', generation: { id: 'g1', seq: 3, offset: 0 }, finish_reason: 'error', usage: nothing },
    ...extra,
  });
}

let shown: Record<string, unknown> | null = null;

function show(message: ChatMessage) {
  const session = { online: true, regenerate: vi.fn(), continue: vi.fn() };
  shown = mount(AssistantMessage, {
    target: document.body,
    props: {
      ...{ message, siblings: [message], last: true, busy: false, waiting: undefined, onBranch: () => {} },
      session: session as unknown as ChatSession,
    },
  });
  flushSync();
  return session;
}

const element = (name: string) => document.querySelector<HTMLElement>(`[data-testid="${name}"]`);

afterEach(async () => {
  if (shown) await unmount(shown);
  shown = null;
  language.choose('en');
  localStorage.clear();
});

describe('the reason of a failed answer', () => {
  it.each(CODES)('%s has a sentence of its own in both languages, without the words of the engine', (code) => {
    const sentence = explainFailure(error(code));
    language.choose('ko');
    const translated = explainFailure(error(code));
    for (const said of [sentence, translated]) expect(said).not.toContain(raw);
    for (const said of [sentence, translated]) expect(said).not.toMatch(/null|undefined|NaN/);
    expect([english.errors.internal, korean.errors.internal]).not.toContain(sentence);
    expect(translated).toMatch(/^[^a-zA-Z]+$/);
  });

  it('gives the numbers of a limit in tokens', () => {
    expect(explainFailure(memory)).toContain('1,040 tokens, and your tenant can have 512');
    const context = error('context_length_exceeded', { prompt_tokens: 9000, context_length: 8192 });
    expect(explainFailure(context)).toContain('9,000 tokens, and the model can read 8,192');
    expect(explainFailure(error('queue_full', { waiting: 64 }))).toContain('64 requests');
    language.choose('ko');
    expect(explainFailure(memory)).toContain('1,040토큰');
    expect(explainFailure(memory)).toContain('512토큰');
  });

  it('of an unknown code is told in general, in Korean without English', () => {
    expect(explainFailure(error('novel'))).toBe(`${english.errors.internal} ${raw}`);
    expect(explainFailure(raw)).toBe(`${english.failed} ${raw}`);
    language.choose('ko');
    expect(explainFailure(error('novel'))).toBe(korean.errors.internal);
    expect(explainFailure(raw)).toBe(korean.failed);
    expect(explain({ code: 'too_large', message: raw })).toBe(korean.errors.too_large);
  });

  it('decides what can be done about it', () => {
    const lasting = ['kv_limit_exceeded', 'context_length_exceeded', 'invalid_request'];
    expect(CODES.filter((code) => !canTryAgain(error(code))).sort()).toEqual(lasting.sort());
    expect(canTryAgain(null)).toBe(true);
    expect(canContinueFailed('', error('model_error'))).toBe(false);
    expect(canContinueFailed('Once', error('model_error'))).toBe(true);
    expect(canContinueFailed('Once', memory)).toBe(false);
    expect(canContinueFailed('Once', error('context_length_exceeded'))).toBe(false);
  });
});

describe('an answer that was cut short', () => {
  const cut: Partial<Message> = { content: 'Once upon', state: 'complete', finish_reason: 'length' };
  const limit = error('kv_limit_exceeded', { limit_blocks: 8, block_size: 16 });

  it('by its own length can be continued', () => {
    const message = answer({ ...cut, error: null });
    const session = show(message);
    expect(element('message-remark')?.textContent).toBe(english.lengthReached);
    element('continue')?.click();
    expect(session.continue).toHaveBeenCalledWith(message);
  });

  it.each(['en', 'ko'] as const)("by the tenant's limit says so and offers no continuation (%s)", (code) => {
    language.choose(code);
    show(answer({ ...cut, error: limit }));
    const remark = element('message-remark')?.textContent;
    expect(remark).toContain(code === 'en' ? 'your tenant can have, 128 tokens' : '테넌트의 메모리 한도인 128토큰');
    expect(remark).not.toContain(raw);
    expect(element('message-error')).toBeNull();
    expect(element('continue')).toBeNull();
    expect(element('regenerate')).not.toBeNull();
  });

  it("by the tenant's limit and then refused when continued offers it no more", () => {
    show(answer({ content: 'Once upon', error: memory }));
    expect(element('message-error')?.textContent).toContain('1,040 tokens');
    expect(element('continue')).toBeNull();
  });
});

describe('a failed answer', () => {
  it('over a limit says so, offers no repetition, and has no line about tokens', () => {
    show(answer({ error: memory }));
    expect(element('message-error')?.textContent).toContain('start a new conversation');
    expect(element('try-again')).toBeNull();
    expect(element('continue')).toBeNull();
    expect(element('message-usage')).toBeNull();
  });

  it('with text can be continued or tried again', () => {
    const usage = { prompt_tokens: 9, cached_tokens: 0, output_tokens: 4, decode_s: null };
    const message = answer({ content: 'Once upon', error: error('model_error'), usage });
    const session = show(message);
    element('continue')?.click();
    expect(session.continue).toHaveBeenCalledWith(message);
    element('try-again')?.click();
    expect(session.regenerate).toHaveBeenCalledWith(message);
    expect(element('message-usage')?.textContent?.trim()).toBe('9 prompt, 0 cached · 4 tokens');
    element('message-usage')?.click();
    flushSync();
    expect(document.querySelector('dl')?.textContent).not.toContain(english.usageDecode);
  });

  it('is announced as failed, and not again while it is continued', () => {
    const tell = (message: ChatMessage) => {
      const session = { tree: null, lastFinished: message } as unknown as ChatSession;
      shown = mount(LiveRegion, { target: document.body, props: { session } });
      flushSync();
      return element('live-region')?.textContent;
    };
    expect(tell(answer({ content: 'Once', error: error('model_error') }))).toBe('The answer failed.');
    void unmount(shown!);
    expect(tell(answer({ content: 'Once', state: 'complete' }))).toBe('Answer finished. Once');
    void unmount(shown!);
    expect(tell(answer({ content: 'Once', state: 'streaming' }))).toBe('');
  });
});

describe('usage', () => {
  it('has a speed only where the time is known', () => {
    const usage = { prompt_tokens: 9, cached_tokens: 0, output_tokens: 40 };
    expect(tokensPerSecond({ ...usage, decode_s: 2 })).toBe(20);
    for (const decode_s of [null, undefined, 0, -1]) expect(tokensPerSecond({ ...usage, decode_s })).toBeNull();
    expect(isEmpty(nothing)).toBe(true);
    expect(isEmpty({ ...nothing, prompt_tokens: 9 })).toBe(false);
  });
});
