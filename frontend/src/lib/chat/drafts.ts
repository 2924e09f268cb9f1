/** Unsent text, one per conversation and member, kept in this browser. */
const PREFIX = 'pagoda.draft.';

function key(member: string, conversationId: string | null): string {
  return `${PREFIX}${member}.${conversationId ?? 'new'}`;
}

export function readDraft(member: string, conversationId: string | null): string {
  try {
    return localStorage.getItem(key(member, conversationId)) ?? '';
  } catch {
    return '';
  }
}

export function writeDraft(member: string, conversationId: string | null, text: string): void {
  try {
    if (text === '') localStorage.removeItem(key(member, conversationId));
    else localStorage.setItem(key(member, conversationId), text);
  } catch {
    // Storage is full or forbidden: the draft then lives as long as the page.
  }
}

/** The new conversation got its id: what was typed meanwhile goes along. */
export function moveNewDraft(member: string, conversationId: string): void {
  const text = readDraft(member, null);
  if (text === '') return;
  writeDraft(member, conversationId, text);
  writeDraft(member, null, '');
}

/** For a sign-out: the next person at this browser must not find them. */
export function forgetDrafts(): void {
  try {
    for (const name of Object.keys(localStorage)) if (name.startsWith(PREFIX)) localStorage.removeItem(name);
  } catch {
    // Nothing could have been kept either.
  }
}
