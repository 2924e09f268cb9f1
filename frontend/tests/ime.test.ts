// @vitest-environment node
import { describe, expect, it } from 'vitest';
import { EnterToSend, type EnterKey } from '../src/lib/composer/ime';

function enter(extra: Partial<EnterKey> = {}): EnterKey {
  return {
    ...{ key: 'Enter', code: 'Enter', keyCode: 13, isComposing: false, repeat: false },
    ...{ shiftKey: false, ctrlKey: false, altKey: false, metaKey: false },
    ...extra,
  };
}

const composing = enter({ keyCode: 229, isComposing: true });
const letter = enter({ key: 'a', code: 'KeyA', keyCode: 65 });

function composingHangul(): EnterToSend {
  const field = new EnterToSend();
  field.compositionStart();
  field.compositionUpdate('ㅎ');
  field.compositionUpdate('한');
  return field;
}

describe('Enter', () => {
  it('sends', () => {
    expect(new EnterToSend().keyDown(enter())).toBe('send');
  });

  it('breaks the line with Shift', () => {
    expect(new EnterToSend().keyDown(enter({ shiftKey: true }))).toBe('pass');
  });

  it('sends once while it is held down, and again after it was released', () => {
    const field = new EnterToSend();
    expect(field.keyDown(enter())).toBe('send');
    expect(field.keyDown(enter({ repeat: true }))).toBe('swallow');
    field.keyUp(enter());
    expect(field.keyDown(enter())).toBe('send');
  });

  it('leaves other keys alone', () => {
    expect(new EnterToSend().keyDown(letter)).toBe('pass');
  });
});

describe('Enter in a Korean composition', () => {
  it('sends once, after the syllable is complete, where the browser reports it once', () => {
    const field = composingHangul();
    expect(field.keyDown(composing)).toBe('pass');
    expect(field.compositionEnd('한')).toBe('send');
    field.keyUp(enter());
  });

  it('sends once where the browser reports it twice', () => {
    const field = composingHangul();
    expect(field.keyDown(composing)).toBe('pass');
    expect(field.compositionEnd('한')).toBe('send');
    expect(field.swallowsLineBreak).toBe(true);
    expect(field.keyDown(enter())).toBe('swallow');
    field.keyUp(enter());
    expect(field.swallowsLineBreak).toBe(false);
  });

  it('sends once where the composition ends before the key is reported (Safari)', () => {
    const field = composingHangul();
    expect(field.compositionEnd('한')).toBe('pass');
    expect(field.keyDown(enter({ keyCode: 229 }))).toBe('send');
    expect(field.keyDown(enter())).toBe('swallow');
  });

  it('sends once where the key has no name (Windows)', () => {
    const field = composingHangul();
    expect(field.keyDown(enter({ key: 'Process', keyCode: 229, isComposing: true }))).toBe('pass');
    expect(field.compositionEnd('한')).toBe('send');
    expect(field.keyDown(enter())).toBe('swallow');
  });

  it('does not send when a syllable became a Chinese character', () => {
    const field = composingHangul();
    field.keyDown(composing);
    expect(field.compositionEnd('韓')).toBe('pass');
  });

  it('does not send when the syllable went on', () => {
    const field = composingHangul();
    field.keyDown(composing);
    field.keyDown(enter({ key: 'Process', code: 'KeyR', keyCode: 229, isComposing: true }));
    expect(field.compositionEnd('한')).toBe('pass');
  });

  it('does not send when the composition ends without Enter', () => {
    expect(composingHangul().compositionEnd('한')).toBe('pass');
  });

  it('does not send with Shift', () => {
    const field = composingHangul();
    expect(field.keyDown(enter({ keyCode: 229, isComposing: true, shiftKey: true }))).toBe('pass');
    expect(field.compositionEnd('한')).toBe('pass');
  });

  it('sends the next message as well', () => {
    const field = composingHangul();
    field.keyDown(composing);
    field.compositionEnd('한');
    field.keyUp(enter());
    field.compositionStart();
    field.compositionUpdate('글');
    field.keyDown(composing);
    expect(field.compositionEnd('글')).toBe('send');
  });
});

describe('Enter in a Japanese or Chinese composition', () => {
  it('confirms the conversion and sends nothing', () => {
    const field = new EnterToSend();
    field.compositionStart();
    field.compositionUpdate('にほん');
    expect(field.keyDown(composing)).toBe('pass');
    expect(field.compositionEnd('日本')).toBe('pass');
    field.keyUp(enter());
    expect(field.keyDown(enter())).toBe('send');
  });

  it('confirms the conversion in Safari, too', () => {
    const field = new EnterToSend();
    field.compositionStart();
    field.compositionUpdate('にほん');
    field.compositionEnd('日本');
    expect(field.keyDown(enter({ keyCode: 229 }))).toBe('pass');
  });
});
