/** Groups conversations by when they were last used, as the sidebar shows them. */
import type { Conversation } from '../protocol/messages';

export type Age = 'today' | 'yesterday' | 'lastWeek' | 'older';

const DAY_MS = 86_400_000;

export function groupByAge(conversations: readonly Conversation[], now: Date) {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const groups: { age: Age; conversations: Conversation[] }[] = [];
  for (const conversation of conversations) {
    const age = ageOf(Date.parse(conversation.updated), midnight);
    const last = groups.at(-1);
    if (last?.age === age) last.conversations.push(conversation);
    else groups.push({ age, conversations: [conversation] });
  }
  return groups;
}

function ageOf(time: number, midnight: number): Age {
  if (time >= midnight) return 'today';
  if (time >= midnight - DAY_MS) return 'yesterday';
  return time >= midnight - 7 * DAY_MS ? 'lastWeek' : 'older';
}
