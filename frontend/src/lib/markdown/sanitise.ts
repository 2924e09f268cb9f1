/** The last step before text from a model becomes HTML: nothing that this file does not name gets through. */
import DOMPurify from 'dompurify';

const TAGS = [
  ...['p', 'br', 'hr', 'strong', 'em', 'del', 'a', 'span', 'blockquote', 'ul', 'ol', 'li'],
  ...['h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'code', 'pre', 'figure', 'figcaption'],
  ...['table', 'thead', 'tbody', 'tr', 'th', 'td'],
];
const ATTRIBUTES = ['href', 'title', 'class', 'start', 'align', 'tabindex'];
const CLASS = /^(hljs(-[a-z_-]+)?|language-[\w#+.-]+|code|[a-z]+_)$/;
const LINK = /^(https?:|mailto:)/i;

const purifier = DOMPurify(window);

purifier.addHook('afterSanitizeAttributes', (node) => {
  const classes = [...node.classList].filter((name) => CLASS.test(name));
  if (classes.length > 0) node.className = classes.join(' ');
  else node.removeAttribute('class');
  if (node.nodeName !== 'A') return;
  node.setAttribute('rel', 'noopener noreferrer nofollow');
  node.setAttribute('target', '_blank');
});

/** Safe HTML for `html`. Images, forms, styles, ids and scripts are dropped; links open apart and tell no referrer. */
export function sanitise(html: string): string {
  return purifier.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    ALLOWED_URI_REGEXP: LINK,
    // DOMPurify tests every attribute against that pattern; these hold no addresses.
    ADD_URI_SAFE_ATTR: ['start', 'align', 'tabindex'],
  });
}
