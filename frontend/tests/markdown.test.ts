import { describe, expect, it } from 'vitest';
import { loadHighlighter } from '../src/lib/markdown/highlight';
import { MarkdownRenderer } from '../src/lib/markdown/render';

const html = (text: string) =>
  new MarkdownRenderer()
    .finished(text)
    .map((block) => block.html)
    .join('');

const DOCUMENT = `# 제목

첫 문단은 **“강조”**를 씁니다. 10~20명, 30~40명.

- 하나
- 둘

  둘째 문단

- 셋

1. one

2. two

\`\`\`python
def f():
    return "x"

# not a heading
\`\`\`

| a | b |
|---|--:|
| 1 | 2 |

> quote
> more

Setext
------

Tags on
#one line, and
***strong*** at the start of
another

Last line with \`code\`, [a link](https://a.example) and ~~gone~~.`;

describe('emphasis beside Korean', () => {
  it.each([
    ['**"인용"**는', '<strong>"인용"</strong>는'],
    ['**“인용”**는', '<strong>“인용”</strong>는'],
    ['이것은 **(중요)**입니다', '이것은 <strong>(중요)</strong>입니다'],
    ['**강조**를', '<strong>강조</strong>를'],
    ['*「기울임」*은', '<em>「기울임」</em>은'],
    ['**마침표.**그리고', '<strong>마침표.</strong>그리고'],
  ])('%s', (source, expected) => {
    expect(html(source)).toContain(expected);
  });
});

describe('tildes', () => {
  it('are ranges alone and deletions in pairs', () => {
    expect(html('10~20명, 30~40명')).not.toContain('<del>');
    expect(html('~~지움~~')).toContain('<del>지움</del>');
  });
});

describe('a text that grows', () => {
  it('ends as the finished text, however it was cut', () => {
    const whole = new MarkdownRenderer().finished(DOCUMENT).map((block) => block.html);
    for (const step of [1, 7]) {
      const renderer = new MarkdownRenderer();
      for (let length = step; length < DOCUMENT.length; length += step) renderer.growing(DOCUMENT.slice(0, length));
      expect(renderer.growing(DOCUMENT).map((block) => block.html)).toEqual(whole);
    }
  });

  it('never changes a closed block', () => {
    const renderer = new MarkdownRenderer();
    let closed: string[] = [];
    for (let length = 1; length <= DOCUMENT.length; length += 1) {
      const now = renderer
        .growing(DOCUMENT.slice(0, length))
        .filter((block) => block.closed)
        .map((block) => block.html);
      expect(now.slice(0, closed.length)).toEqual(closed);
      closed = now;
    }
    expect(closed.length).toBeGreaterThan(6);
  });

  it('shows half-open emphasis, code and links as what they will be', () => {
    const open = (text: string) =>
      new MarkdownRenderer()
        .growing(text)
        .map((block) => block.html)
        .join('');
    expect(open('some **bo')).toContain('<strong>bo</strong>');
    expect(open('some `co')).toContain('<code>co</code>');
    expect(open('see [the docs](https://a.exa')).toContain('see the docs');
    expect(open('see [the docs](https://a.exa')).not.toContain('href');
  });

  it('starts over when the text was replaced', () => {
    const renderer = new MarkdownRenderer();
    renderer.growing('one\n\ntwo\n\nthree');
    expect(renderer.growing('other\n\ntext').map((block) => block.html.trim())).toEqual([
      '<p>other</p>',
      '<p>text</p>',
    ]);
  });
});

describe('a text that broke off', () => {
  it('closes what it left open', () => {
    const [block] = new MarkdownRenderer().finished('as the **stu', true);
    expect(block!.html).toContain('<strong>stu</strong>');
  });
});

describe('code', () => {
  it('is coloured when its language is known, and keeps its text', async () => {
    const renderer = new MarkdownRenderer(await loadHighlighter());
    const [block] = renderer.finished('```python\ndef f(x):\n    return "<b>" + x\n```');
    expect(block!.html).toContain('hljs-keyword');
    const holder = document.createElement('div');
    holder.innerHTML = block!.html;
    expect(holder.querySelector('code')!.textContent).toBe('def f(x):\n    return "<b>" + x\n');
  });

  it('is shown plainly when its language is unknown', async () => {
    const renderer = new MarkdownRenderer(await loadHighlighter());
    expect(renderer.finished('```brainrot\n<x>\n```')[0]!.html).toContain('&lt;x&gt;');
  });
});

describe('tables', () => {
  it('keep their alignment', () => {
    expect(html('| a |\n|--:|\n| 1 |')).toContain('align="right"');
  });
});
