/** Every sentence of the page, in English; the other languages have the same shape. */
import type { Limits } from '../chat/failure';

const number = new Intl.NumberFormat('en');
const plural = (count: number, one: string, many: string) => `${number.format(count)} ${count === 1 ? one : many}`;

export const english = {
  name: 'English',
  newConversation: 'New conversation',
  conversations: 'Conversations',
  untitled: 'Untitled',
  today: 'Today',
  yesterday: 'Yesterday',
  lastWeek: 'Previous 7 days',
  older: 'Older',
  noConversations: 'Your conversations will appear here.',
  loadMore: 'Show older',
  rename: 'Rename',
  delete: 'Delete',
  cancel: 'Cancel',
  save: 'Save',
  actionsFor: (title: string) => `Actions for “${title}”`,
  deleteTitle: 'Delete this conversation?',
  deleteText: (title: string) => `“${title}” and all its branches will be gone for good.`,
  openSidebar: 'Open the list of conversations',
  closeSidebar: 'Close the list of conversations',
  skipToComposer: 'Skip to the message field',
  greeting: (name: string) => (name ? `What is on your mind, ${name}?` : 'What is on your mind?'),
  greetingDetail: (tenant: string) =>
    tenant ? `A private conversation inside ${tenant}.` : 'A private conversation on your own server.',
  placeholder: 'Write a message…',
  messageField: 'Message',
  send: 'Send',
  stop: 'Stop',
  stopping: 'Stopping…',
  sendHint: 'Enter sends, Shift + Enter starts a new line',
  tooLong: (over: number) => `${plural(over, 'character', 'characters')} too many to send`,
  charactersLeft: (left: number) => `${plural(left, 'character', 'characters')} left`,
  waitForAnswer: 'You can send when the answer is done, or stop it.',
  you: 'You',
  assistant: 'Assistant',
  thinking: 'Waiting for the first word…',
  copy: 'Copy',
  copied: 'Copied',
  copyCode: 'Copy code',
  regenerate: 'Answer again',
  continue: 'Continue',
  edit: 'Edit',
  sendEdit: 'Send as a new branch',
  branch: (index: number, count: number) => `Branch ${index} of ${count}`,
  previousBranch: 'Previous branch',
  nextBranch: 'Next branch',
  sending: 'Sending…',
  willBeSent: 'Not sent yet. It goes out by itself when the connection is back.',
  tryAgain: 'Try again',
  discard: 'Discard',
  takeBack: 'Back to the message field',
  usage: (prompt: number, cached: number, output: number) =>
    `${number.format(prompt)} prompt, ${number.format(cached)} cached · ${plural(output, 'token', 'tokens')}`,
  promptOnly: (prompt: number, cached: number) => `${number.format(prompt)} prompt, ${number.format(cached)} cached`,
  speed: (rate: number) => `${rate} tok/s`,
  usagePrompt: 'Prompt tokens',
  usageCached: 'of these already in the cache',
  usageOutput: 'Tokens written',
  usageQueued: 'Waited for a place',
  usagePrefill: 'Read the prompt in',
  usageDecode: 'Wrote the answer in',
  usageSaved: 'Saved by the cache, about',
  usageFreed: 'Memory blocks given back',
  usageDetails: 'Details of this answer',
  seconds: (value: number) => `${value < 10 ? value.toFixed(2) : value.toFixed(1)} s`,
  stopped: (blocks: number | undefined) =>
    blocks === undefined ? 'Stopped.' : `Stopped, ${plural(blocks, 'block', 'blocks')} freed.`,
  interrupted:
    'This answer broke off: the engine or the server went away. What was written is kept; you can continue it.',
  lengthReached: 'The answer reached its length limit. You can continue it.',
  tenantLimitReached: ({ limit }: Limits) =>
    (limit === null
      ? 'The answer ends here: it reached the memory that your tenant can have.'
      : `The answer ends here: it reached the memory that your tenant can have, ${number.format(limit)} tokens.`) +
    ' Start a new conversation, or ask your admin for a higher limit.',
  failed: 'This answer could not be made.',
  connecting: 'Connecting…',
  connected: 'Connected',
  offline: 'You are offline. What you write is kept and sent later.',
  reconnecting: (seconds: number) =>
    seconds > 0 ? `Connection lost. Trying again in ${seconds} s.` : 'Connection lost. Trying again…',
  connectNow: 'Connect now',
  noModel: 'No engine is reachable right now: you can read, and new answers may fail until it is back.',
  signedOutTitle: 'You are signed out',
  signedOutText: 'Sign in again to go on. Drafts in this browser are kept.',
  signIn: 'Sign in',
  forbiddenTitle: 'No access',
  forbiddenText: 'You are not a member of this tenant any more, or it is suspended. Ask its admin.',
  unsupportedTitle: 'This page is out of date',
  unsupportedText: 'The server speaks a newer protocol. Reload the page to get the current version.',
  reload: 'Reload',
  missingTitle: 'No such conversation',
  missingText: 'It was deleted, or it belongs to somebody else.',
  loading: 'Loading…',
  jumpToLatest: 'Jump to the latest',
  showEarlier: 'Show earlier messages',
  dismiss: 'Dismiss',
  answerStarted: 'The answer is being written.',
  answerFinished: (start: string) => `Answer finished. ${start}`,
  answerFailed: 'The answer failed.',
  tenant: 'Tenant',
  members: 'Members and keys',
  admin: 'Administration',
  signOut: 'Sign out',
  language: 'Language',
  account: 'Account and settings',
  errors: {
    invalid: 'The server did not accept this.',
    not_found: 'It is not there any more. Reload the conversation.',
    conflict: 'An answer is still being written here. Wait for it, or stop it, and try again.',
    too_large: 'This is too long. Shorten it, or start a new conversation.',
    rate_limited: 'Too many messages at once. Wait a moment and try again.',
    budget_used: 'The tokens of this month are used up. Ask your admin for more, or wait for the next month.',
    unavailable: 'No engine is reachable right now. Try again in a moment.',
    internal: 'Something went wrong on the server. Try again; if it stays, tell your admin.',
    offline: 'There is no connection. Try again when it is back.',
  } as Record<string, string>,
  /** Why the engine made no answer, by the code of its error. */
  failures: {
    kv_limit_exceeded: ({ needed, limit }) =>
      (needed === null || limit === null
        ? 'This conversation needs more memory than your tenant can have.'
        : `This conversation needs memory for ${number.format(needed)} tokens, and your tenant can have ${number.format(limit)}.`) +
      ' Shorten the message, start a new conversation, or ask your admin for a higher limit.',
    context_length_exceeded: ({ needed, limit }) =>
      (needed === null || limit === null
        ? 'This conversation is longer than the model can read.'
        : `This conversation has ${number.format(needed)} tokens, and the model can read ${number.format(limit)}.`) +
      ' Shorten the message, or start a new conversation.',
    invalid_request: () =>
      'The engine cannot work with this message. Change it, or start a new conversation; if it stays, tell your admin.',
    queue_full: ({ waiting }) =>
      (waiting === null
        ? 'Too many requests of your tenant are waiting.'
        : `${plural(waiting, 'request', 'requests')} of your tenant ${waiting === 1 ? 'is' : 'are'} waiting already, which is the limit.`) +
      ' Try again in a moment.',
    unknown_account: () =>
      'The engine does not know your tenant at the moment. Try again in a few seconds; if it stays, ask your admin.',
    model_error: () => 'The model failed on this answer. Try again; if it stays, tell your admin.',
    engine_stopping: () => 'The engine was being stopped. Try again when it is back.',
    unavailable: () => 'The engine could not be reached. Try again in a moment.',
  } as Record<string, (limits: Limits) => string>,
  retryAfter: (seconds: number) => `Try again in ${plural(seconds, 'second', 'seconds')}.`,
};

export type Dictionary = typeof english;
