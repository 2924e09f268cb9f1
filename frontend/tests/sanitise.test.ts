import { describe, expect, it } from 'vitest';
import { MarkdownRenderer } from '../src/lib/markdown/render';
import { sanitise } from '../src/lib/markdown/sanitise';

const ATTACKS = [
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  '<svg onload=alert(1)>',
  '<svg><script>alert(1)</script></svg>',
  '<svg><animate onbegin=alert(1) attributeName=x dur=1s>',
  '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=alert(1)&gt;">',
  '<iframe src="javascript:alert(1)"></iframe>',
  '<iframe srcdoc="<script>alert(1)</script>"></iframe>',
  '<object data="javascript:alert(1)"></object>',
  '<embed src="javascript:alert(1)">',
  '<a href="javascript:alert(1)">x</a>',
  '<a href="JaVaScRiPt:alert(1)">x</a>',
  '<a href="java\nscript:alert(1)">x</a>',
  '<a href="&#106;avascript:alert(1)">x</a>',
  '<a href="data:text/html,<script>alert(1)</script>">x</a>',
  '<a href="vbscript:msgbox(1)">x</a>',
  '<a href="https://a.example" onclick="alert(1)">x</a>',
  '<form action="https://evil.example"><input name=password><button>Sign in</button></form>',
  '<body onload=alert(1)>',
  '<input autofocus onfocus=alert(1)>',
  '<details open ontoggle=alert(1)>',
  '<video><source onerror=alert(1)>',
  '<style>body{background:url(https://evil.example)}</style>',
  '<p style="background:url(https://evil.example)">x</p>',
  '<link rel=stylesheet href=https://evil.example/x.css>',
  '<meta http-equiv=refresh content="0;url=https://evil.example">',
  '<base href="https://evil.example/">',
  '<p id="app">x</p><p id="pagoda-boot">y</p>',
  '<a name="pagoda-boot" href="https://a.example">x</a>',
  '<template><img src=x onerror=alert(1)></template>',
  '<noscript><p title="</noscript><img src=x onerror=alert(1)>"></noscript>',
  '<p class="button primary icon-button">x</p>',
  '<xss-element onmouseover=alert(1)>x</xss-element>',
  '[x](javascript:alert(1))',
  '[x](JAVASCRIPT:alert(1))',
  '[x](data:text/html;base64,PHNjcmlwdD4=)',
  '[x](<javascript:alert(1)>)',
  '[x]: javascript:alert(1)\n\n[x]',
  '<javascript:alert(1)>',
  '![x](https://tracker.example/pixel.png)',
  '![x](data:image/svg+xml,<svg onload=alert(1)>)',
  '![x" onerror="alert(1)](https://a.example)',
  '```"><img src=x onerror=alert(1)>\ncode\n```',
  '```js\n</code></pre><script>alert(1)</script>\n```',
  '`</code><img src=x onerror=alert(1)>`',
  '| a |\n|---|\n| <img src=x onerror=alert(1)> |',
];

/** Everything about an element that could act, load, or pass for a part of the page. */
function dangers(html: string): string[] {
  const holder = document.createElement('div');
  holder.innerHTML = html;
  const found: string[] = [];
  for (const element of holder.querySelectorAll('*')) {
    const name = element.tagName.toLowerCase();
    if (
      !/^(p|br|hr|strong|em|del|a|span|blockquote|[uo]l|li|h[1-6]|code|pre|fig(ure|caption)|t(able|head|body|r|h|d))$/.test(
        name,
      )
    ) {
      found.push(name);
    }
    for (const { name: attribute, value } of element.attributes) {
      if (!/^(href|title|class|start|align|tabindex|rel|target)$/.test(attribute)) found.push(`${name}[${attribute}]`);
      if (attribute === 'href' && !/^(https?:|mailto:)/i.test(value)) found.push(value);
      if (attribute === 'class' && /button|icon|visually/.test(value)) found.push(`class=${value}`);
    }
  }
  return found;
}

describe('nothing that a model writes acts on the page', () => {
  it.each(ATTACKS)('as markdown: %s', (attack) => {
    const renderer = new MarkdownRenderer((code) => code);
    for (const block of renderer.finished(attack)) expect(dangers(block.html)).toEqual([]);
  });

  it.each(ATTACKS)('while it is written: %s', (attack) => {
    const renderer = new MarkdownRenderer();
    for (let length = 1; length <= attack.length; length += 6) {
      for (const block of renderer.growing(attack.slice(0, length))) expect(dangers(block.html)).toEqual([]);
    }
  });

  it.each(ATTACKS)('as HTML that some transform made: %s', (attack) => {
    expect(dangers(sanitise(attack))).toEqual([]);
  });

  it('shows HTML as text', () => {
    const [block] = new MarkdownRenderer().finished('<b>bold</b> and <script>alert(1)</script>');
    expect(block!.html).toContain('&lt;b&gt;');
    expect(block!.html).toContain('&lt;script&gt;');
  });
});

describe('links', () => {
  it('open apart and tell no referrer', () => {
    const [block] = new MarkdownRenderer().finished('[docs](https://a.example/x)');
    const holder = document.createElement('div');
    holder.innerHTML = block!.html;
    const link = holder.querySelector('a')!;
    expect(link.target).toBe('_blank');
    expect(link.rel).toContain('noopener');
    expect(link.rel).toContain('noreferrer');
  });

  it('stand in for pictures, which are never loaded', () => {
    const [block] = new MarkdownRenderer().finished('![A cat](https://cats.example/1.png)');
    expect(block!.html).not.toContain('<img');
    expect(block!.html).toContain('A cat · cats.example');
  });
});
