// @vitest-environment node
import { describe, expect, it } from 'vitest';
import { apply, merge, progressOf, type GenerationProgress } from '../src/lib/protocol/generation';
import type { Delta, Finished, GenerationEvent, Message, Snapshot, Started } from '../src/lib/protocol/messages';

const WORDS = ['Hello', ', ', '세상', ' 👩‍🚀', '!', '\n\n', '- one', '\n- two'];
const ids = { generation_id: 'g1', message_id: 'm1' };

const started: Started = { type: 'generation.started', ...ids, seq: 1, prompt_tokens: 132, cached_tokens: 96 };
const deltas: Delta[] = WORDS.map((text, index) => ({ type: 'generation.delta', ...ids, seq: index + 2, text }));
const finished: Finished = {
  ...{ type: 'generation.finished', ...ids, seq: WORDS.length + 2, state: 'complete', finish_reason: 'stop' },
  ...{ usage: { prompt_tokens: 132, cached_tokens: 96, output_tokens: 8 }, error: null },
};
const log: GenerationEvent[] = [started, ...deltas, finished];

/** The text after the first `seq` events. */
const textAt = (seq: number) => WORDS.slice(0, Math.max(0, seq - 1)).join('');

function message(content: string, seq: number, offset = 0, extra: Partial<Message> = {}): Message {
  return {
    ...{
      id: 'm1',
      conversation_id: 'c1',
      parent_id: 'u1',
      role: 'assistant',
      content,
      created: '2026-01-01T00:00:00Z',
    },
    ...{ state: 'streaming', generation: { id: 'g1', seq, offset }, finish_reason: null, usage: null },
    ...extra,
  };
}

function begin(seq = 0, prefix = ''): GenerationProgress {
  return progressOf(message(prefix + textAt(seq), seq, prefix.length))!;
}

function snapshot(seq: number): Snapshot {
  return { type: 'generation.snapshot', ...ids, seq, text: textAt(seq) };
}

/** What a server sends for an attach, given how far the stored text reaches. */
function attachment(afterSeq: number, stored: number): GenerationEvent[] {
  if (afterSeq >= stored) return log.slice(afterSeq);
  return [snapshot(stored), ...log.slice(stored)];
}

function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
}

describe('a generation', () => {
  it('is the concatenation of its deltas', () => {
    const end = log.reduce((progress, event) => apply(progress, event).progress, begin());
    expect(end).toMatchObject({ text: WORDS.join(''), state: 'complete', finishReason: 'stop', seq: 10 });
    expect(end.prompt).toEqual({ tokens: 132, cached: 96 });
  });

  it('ignores events it has seen', () => {
    const twice = log.flatMap((event) => [event, event]);
    const end = twice.reduce((progress, event) => apply(progress, event).progress, begin());
    expect(end.text).toBe(WORDS.join(''));
  });

  it('asks to attach where an event is missing, and keeps its text', () => {
    const step = apply(begin(3), log[4]!);
    expect(step.outcome).toBe('attach');
    expect(step.progress.text).toBe(textAt(3));
  });

  it('asks to attach when only the end arrives', () => {
    expect(apply(begin(3), finished).outcome).toBe('attach');
  });

  it('takes a newer snapshot as a whole', () => {
    const step = apply(begin(3), snapshot(7));
    expect(step.progress).toMatchObject({ text: textAt(7), seq: 7 });
  });

  it('does not go back to an older snapshot while the answer is written', () => {
    const step = apply(begin(7), snapshot(4));
    expect(step.progress).toMatchObject({ text: textAt(7), seq: 7 });
    expect(apply(step.progress, log[7]!).progress.text).toBe(textAt(8));
  });

  it('goes back to the stored text when the answer broke off there', () => {
    const broken: Finished = { ...finished, seq: 4, state: 'interrupted', finish_reason: null, usage: null };
    const after = apply(apply(begin(7), snapshot(4)).progress, broken);
    expect(after.progress).toMatchObject({ text: textAt(4), seq: 4, state: 'interrupted' });
  });

  it('has the stored message read again when it broke off and the stored text is unknown', () => {
    const broken: Finished = { ...finished, seq: 4, state: 'interrupted', finish_reason: null, usage: null };
    expect(apply(begin(7), broken).outcome).toBe('reopen');
  });

  it('keeps what earlier generations wrote before its own text', () => {
    const end = log.reduce((progress, event) => apply(progress, event).progress, begin(0, 'Before 😀 '));
    expect(end.prefix + end.text).toBe(`Before 😀 ${WORDS.join('')}`);
  });

  it('ignores another generation', () => {
    expect(apply(begin(3), { ...log[3]!, generation_id: 'g2' }).outcome).toBe('ignored');
  });

  it('neither loses nor doubles text however subscriptions interleave, break and start again', () => {
    for (let seed = 1; seed <= 400; seed += 1) {
      const next = random(seed);
      let progress = begin();
      let streams: GenerationEvent[][] = [attachment(0, 0)];
      for (let steps = 0; progress.state === 'streaming'; steps += 1) {
        expect(steps).toBeLessThan(400);
        if (next() < 0.1) streams = [];
        if (streams.length === 0 || next() < 0.15) {
          // The stored text lags behind or runs ahead of this client, which may also be told the message again.
          const stored = Math.floor(next() * (log.length - 1));
          if (next() < 0.3) progress = merge(progress, begin(stored))!;
          streams.push(attachment(progress.seq, stored));
        }
        const stream = streams[Math.floor(next() * streams.length)]!;
        const event = stream.shift();
        if (event === undefined) {
          streams.splice(streams.indexOf(stream), 1);
          continue;
        }
        const step = apply(progress, event);
        progress = step.progress;
        expect(progress.text).toBe(textAt(Math.min(progress.seq, log.length - 1)));
        if (step.outcome === 'attach') streams.push(attachment(progress.seq, Math.floor(next() * 5)));
      }
      expect(progress.text).toBe(WORDS.join(''));
    }
  });
});

describe('a message told again', () => {
  it('does not take away what was already applied', () => {
    expect(merge(begin(7), begin(4))!.seq).toBe(7);
  });

  it('brings what this client has missed', () => {
    expect(merge(begin(4), begin(7))!.text).toBe(textAt(7));
  });

  it('ends the generation when the server says that it ended', () => {
    const stored = progressOf(message('short', 4, 0, { state: 'interrupted' }));
    expect(merge(begin(7), stored)).toMatchObject({ state: 'interrupted', text: 'short' });
  });

  it('does not restart a generation that ended', () => {
    const end = log.reduce((progress, event) => apply(progress, event).progress, begin());
    expect(merge(end, begin(4))!.state).toBe('complete');
  });

  it('switches to the generation of a Continue', () => {
    const continued = progressOf(message('Hello', 0, 5, { generation: { id: 'g2', seq: 0, offset: 5 } }));
    expect(merge(begin(7), continued)).toMatchObject({ id: 'g2', prefix: 'Hello', text: '' });
  });
});
