/** highlight.js, fetched when the first code block appears. */
import type { Highlighter } from './render';

const LONGEST_CODE = 40_000;

let loading: Promise<Highlighter> | undefined;

export function loadHighlighter(): Promise<Highlighter> {
  loading ??= import('./languages').then(({ highlighter }) => (code: string, language: string) => {
    const name = language.toLowerCase();
    if (code.length > LONGEST_CODE || !highlighter.getLanguage(name)) return null;
    return highlighter.highlight(code, { language: name, ignoreIllegals: true }).value;
  });
  return loading;
}
