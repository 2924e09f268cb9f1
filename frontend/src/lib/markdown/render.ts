/** Markdown to safe HTML, block by block, so that a growing answer re-renders only its last block. */
import { Marked, type Token, type TokensList } from 'marked';
import markedCjkFriendly from 'marked-cjk-friendly';
import remend from 'remend';
import { sanitise } from './sanitise';

/** Highlighted HTML for a piece of code, or null to show it plainly. */
export type Highlighter = (code: string, language: string) => string | null;

export interface Block {
  /** Sanitised HTML of one top-level block. */
  readonly html: string;
  /** Nothing that follows can change it. */
  readonly closed: boolean;
}

const ESCAPES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ESCAPES[character] ?? character);
}

function hostOf(address: string): string {
  try {
    return new URL(address).host;
  } catch {
    return '';
  }
}

function parserWith(highlight: Highlighter | null): Marked {
  const marked = new Marked({ gfm: true, breaks: true, async: false });
  marked.use(markedCjkFriendly(), {
    tokenizer: {
      // A single tilde is a range in Korean ("10~20명"), never a deletion.
      del(source) {
        return /^~~(?!~)/.test(source) ? false : undefined;
      },
    },
    renderer: {
      code({ text, lang }) {
        const language = (lang ?? '').trim().split(/\s+/)[0] ?? '';
        const code = highlight?.(text, language) ?? escape(text);
        const name = language ? ` class="hljs language-${escape(language)}"` : ' class="hljs"';
        const caption = `<figcaption>${escape(language)}</figcaption>`;
        return `<figure class="code">${caption}<pre tabindex="0"><code${name}>${code}\n</code></pre></figure>`;
      },
      // HTML that a model writes is shown, not run: it can neither imitate our controls nor load anything.
      html({ text }) {
        return escape(text);
      },
      // A picture would tell its host who reads the answer: it becomes a link that the reader may follow.
      image({ href, text }) {
        const label = [text || 'image', hostOf(href)].filter(Boolean).join(' · ');
        return `<a href="${escape(href)}">${escape(label)}</a>`;
      },
      checkbox({ checked }) {
        return checked ? '☑ ' : '☐ ';
      },
    },
  });
  return marked;
}

/** Closes what the end of the text leaves open: emphasis, inline code, half a link. */
function complete(text: string): string {
  return remend(text, { linkMode: 'text-only', images: false, htmlTags: false });
}

function lastBlock(tokens: Token[]): number {
  for (let index = tokens.length - 1; index >= 0; index -= 1) if (tokens[index]?.type !== 'space') return index;
  return -1;
}

/** Renders one message; keep one per message, it remembers the blocks that are done. */
export class MarkdownRenderer {
  #marked: Marked;
  #highlight: Highlighter | null;
  #done: Block[] = [];
  /** The source of `#done`. */
  #source = '';

  constructor(highlight: Highlighter | null = null) {
    this.#highlight = highlight;
    this.#marked = parserWith(highlight);
  }

  /** The blocks of a text that will not grow. `cut`: it broke off, so what stands open is closed first. */
  finished(text: string, cut = false): Block[] {
    const tokens = this.#marked.lexer(cut ? complete(text) : text);
    return tokens.filter((token) => token.type !== 'space').map((token) => this.#block(token, tokens, true));
  }

  /** The blocks of a text that still grows. Only the source behind the last closed block is parsed. */
  growing(text: string): Block[] {
    if (text.includes('\r')) text = text.replace(/\r\n?/g, '\n');
    if (!text.startsWith(this.#source)) {
      this.#source = '';
      this.#done = [];
    }
    this.#closeBlocks(text.slice(this.#source.length, text.lastIndexOf('\n') + 1));
    return [...this.#done, ...this.#openBlocks(text.slice(this.#source.length))];
  }

  /**
   * Closes what whole lines say for certain. What comes next may still extend the last block (an item of a list, a line
   * of a paragraph), never one before it. Half a line says nothing: `#` is a heading, and `#tag` goes on with a paragraph.
   */
  #closeBlocks(lines: string): void {
    const tokens = this.#marked.lexer(lines);
    for (const token of tokens.slice(0, Math.max(lastBlock(tokens), 0))) {
      if (token.type !== 'space') this.#done.push(this.#block(token, tokens, true));
      this.#source += token.raw;
    }
  }

  #openBlocks(tail: string): Block[] {
    const [first, ...others] = this.#marked.lexer(tail).filter((token) => token.type !== 'space');
    if (first?.type === 'code' && others.length === 0) {
      // Plain while it grows: colouring a long listing again for every token is what makes pages slow.
      return [{ html: this.#plain(tail), closed: false }];
    }
    const tokens = this.#marked.lexer(complete(tail));
    return tokens.filter((token) => token.type !== 'space').map((token) => this.#block(token, tokens, false));
  }

  #plain(source: string): string {
    return this.#highlight === null ? this.#html(source, this.#marked) : this.#html(source, plainParser());
  }

  #html(source: string, marked: Marked): string {
    return sanitise(marked.parse(source) as string);
  }

  #block(token: Token, list: TokensList, closed: boolean): Block {
    const one = Object.assign([token], { links: list.links }) as TokensList;
    return { html: sanitise(this.#marked.parser(one)), closed };
  }
}

let plain: Marked | undefined;

function plainParser(): Marked {
  plain ??= parserWith(null);
  return plain;
}
