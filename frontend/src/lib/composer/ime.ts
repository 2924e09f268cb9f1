/**
 * When Enter sends, with input methods in between.
 *
 * While a syllable or a conversion is being composed, Enter belongs to the input method. Japanese and Chinese writers
 * confirm a conversion with it and do not mean to send. Korean writers do: a syllable is always in composition, one Enter
 * ends it and sends. Browsers report that Enter as one or two keydowns, before or after `compositionend`; here it sends
 * once, after the last syllable is in the text.
 */

export interface EnterKey {
  key: string;
  code: string;
  keyCode: number;
  isComposing: boolean;
  shiftKey: boolean;
  ctrlKey: boolean;
  altKey: boolean;
  metaKey: boolean;
  repeat: boolean;
}

/** `send`: send now. `swallow`: prevent the default and do nothing. `pass`: let the browser have it. */
export type EnterDecision = 'send' | 'swallow' | 'pass';

const HANGUL = /^[\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff]+$/;

export class EnterToSend {
  #composing = false;
  #hangul = false;
  #sendWhenComposed = false;
  /** Enter has sent; until it is released, it does nothing more. */
  #spent = false;

  compositionStart(): void {
    this.#composing = true;
    this.#hangul = false;
    this.#sendWhenComposed = false;
  }

  compositionUpdate(data: string): void {
    if (data !== '') this.#hangul = HANGUL.test(data);
  }

  /** `send` when Enter ended a Korean composition. */
  compositionEnd(data: string): 'send' | 'pass' {
    this.#composing = false;
    if (data !== '') this.#hangul = HANGUL.test(data);
    const send = this.#sendWhenComposed && this.#hangul;
    this.#sendWhenComposed = false;
    if (!send) return 'pass';
    this.#spent = true;
    return 'send';
  }

  keyDown(event: EnterKey): EnterDecision {
    if (!isEnter(event)) {
      this.#spent = false;
      // Another key went into the composition: the Enter before it was not the last word.
      this.#sendWhenComposed = false;
      return 'pass';
    }
    if (event.shiftKey || event.altKey) return 'pass';
    if (this.#spent || event.repeat) return 'swallow';
    if (event.isComposing || this.#composing) {
      this.#sendWhenComposed = this.#hangul;
      return 'pass';
    }
    // Safari: the Enter that ended a composition arrives after compositionend, marked only by its code.
    if (event.keyCode === 229 && !this.#hangul) return 'pass';
    this.#spent = true;
    return 'send';
  }

  keyUp(event: Pick<EnterKey, 'key' | 'code' | 'keyCode'>): void {
    if (isEnter(event)) this.#spent = false;
  }

  /** The browser is about to break the line although that Enter has already sent. */
  get swallowsLineBreak(): boolean {
    return this.#spent;
  }
}

function isEnter(event: Pick<EnterKey, 'key' | 'code' | 'keyCode'>): boolean {
  if (event.key === 'Enter' || event.keyCode === 13) return true;
  // Windows calls every key of an input method `Process`; only the code tells which it was.
  return event.keyCode === 229 && (event.code === 'Enter' || event.code === 'NumpadEnter');
}
