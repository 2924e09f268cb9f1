/** The language of the page: what the person chose here, else what the server said, else the browser's. */
import { english, type Dictionary } from './english';
import { korean } from './korean';

export type LanguageCode = 'en' | 'ko';

export const LANGUAGES: Record<LanguageCode, Dictionary> = { en: english, ko: korean };

const KEY = 'pagoda.language';

class Language {
  code = $state<LanguageCode>('en');
  text = $derived(LANGUAGES[this.code]);

  start(fromServer: string | null | undefined): void {
    this.#use(known(remembered()) ?? known(fromServer) ?? known(navigator.language) ?? 'en');
  }

  choose(code: LanguageCode): void {
    this.#use(code);
    try {
      localStorage.setItem(KEY, code);
    } catch {
      // Storage is forbidden: the choice then lasts as long as the page.
    }
  }

  #use(code: LanguageCode): void {
    this.code = code;
    document.documentElement.lang = code;
  }
}

function remembered(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function known(tag: string | null | undefined): LanguageCode | null {
  const code = tag?.slice(0, 2).toLowerCase();
  return code === 'en' || code === 'ko' ? code : null;
}

export const language = new Language();

/** Codes of which our sentence says all there is. */
const SELF_EXPLAINING = ['unavailable', 'offline'];

/** What a refusal means for the person: what to do first, then the server's own words, which are English. */
export function explain(error: { code: string; message: string; retry_after_s?: number | null }): string {
  const { errors, retryAfter } = language.text;
  const advice = errors[error.code] ?? errors.internal ?? '';
  const wait = error.retry_after_s ? retryAfter(Math.ceil(error.retry_after_s)) : '';
  const words = SELF_EXPLAINING.includes(error.code) || language.code !== 'en' ? '' : error.message;
  return [advice, wait, words].filter(Boolean).join(' ');
}
