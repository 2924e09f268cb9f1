/** The highlighter, once it is here: every message that shows code is coloured when it arrives. */
import { loadHighlighter } from './highlight';
import type { Highlighter } from './render';

class Highlighting {
  highlighter = $state.raw<Highlighter | null>(null);

  load(): void {
    if (this.highlighter === null) void loadHighlighter().then((highlighter) => (this.highlighter = highlighter));
  }
}

export const highlighting = new Highlighting();
