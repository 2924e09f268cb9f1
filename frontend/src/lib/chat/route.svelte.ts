/** The address: `/` is a new conversation, `/c/<id>` an old one. */
const PATTERN = /^\/c\/([^/]+)\/?$/;

export function conversationIn(path: string): string | null {
  const id = PATTERN.exec(path)?.[1];
  return id === undefined ? null : decodeURIComponent(id);
}

export function pathOf(conversationId: string | null): string {
  return conversationId === null ? '/' : `/c/${encodeURIComponent(conversationId)}`;
}

export class Route {
  conversationId = $state<string | null>(conversationIn(location.pathname));

  constructor(onChange: (conversationId: string | null) => void) {
    window.addEventListener('popstate', () => {
      this.conversationId = conversationIn(location.pathname);
      onChange(this.conversationId);
    });
  }

  go(conversationId: string | null, replace = false): void {
    this.conversationId = conversationId;
    const path = pathOf(conversationId);
    if (location.pathname === path) return;
    if (replace) history.replaceState(null, '', path);
    else history.pushState(null, '', path);
  }
}
