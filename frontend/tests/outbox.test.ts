import { beforeEach, describe, expect, it } from 'vitest';
import type { ClientMessage, CreateMessage, MessageCreated, ServerError } from '../src/lib/protocol/messages';
import { Outbox, type OutboxEntry } from '../src/lib/protocol/outbox';

let sent: ClientMessage[] = [];
let shown: readonly OutboxEntry[] = [];

const open = () =>
  new Outbox(
    (message) => sent.push(message) > 0,
    (entries) => (shown = entries),
  );

function creation(clientId: string): CreateMessage {
  return { type: 'message.create', client_id: clientId, content: 'Hi', conversation_id: null, parent_id: null };
}

const confirmation = (clientId: string) => ({ type: 'message.created', client_id: clientId }) as MessageCreated;

function refusal(clientId: string): ServerError {
  return { type: 'error', client_id: clientId, code: 'unavailable', message: 'No engine.' };
}

beforeEach(() => {
  sent = [];
  sessionStorage.clear();
});

describe('the outbox', () => {
  it('holds back until the connection is open', () => {
    const outbox = open();
    outbox.add(creation('client-1'), null);
    expect(sent).toEqual([]);
    outbox.opened('t/ada');
    expect(sent).toEqual([creation('client-1')]);
  });

  it('sends again after a reconnect, under the same client_id, until it is confirmed', () => {
    const outbox = open();
    outbox.opened('t/ada');
    outbox.add(creation('client-1'), null);
    outbox.closed();
    outbox.opened('t/ada');
    outbox.confirmed(confirmation('client-1'));
    outbox.closed();
    outbox.opened('t/ada');
    expect(sent).toEqual([creation('client-1'), creation('client-1')]);
    expect(shown).toEqual([]);
  });

  it('survives a reload', () => {
    const before = open();
    before.opened('t/ada');
    before.add(creation('client-1'), 'c1');
    sent = [];
    open().opened('t/ada');
    expect(sent).toEqual([creation('client-1')]);
  });

  it('never sends what another member, or the same one in another tenant, wrote', () => {
    const before = open();
    before.opened('t/ada');
    before.add(creation('client-1'), 'c1');
    sent = [];
    open().opened('t/bob');
    expect(sent).toEqual([]);
    before.opened('rival/ada');
    expect(sent).toEqual([]);
  });

  it('keeps nothing beyond the page while the sender is unknown', () => {
    open().add(creation('client-1'), null);
    expect(open().entries).toEqual([]);
  });

  it('waits for the person after a refusal, and tries again as the same message', () => {
    const outbox = open();
    outbox.opened('t/ada');
    outbox.add(creation('client-1'), null);
    expect(outbox.refused(refusal('client-1'))).toBe(true);
    expect(shown[0]!.error?.code).toBe('unavailable');
    outbox.closed();
    outbox.opened('t/ada');
    expect(sent).toHaveLength(1);
    outbox.retry('client-1');
    expect(sent).toHaveLength(2);
    expect(shown[0]!.error).toBeNull();
  });

  it('leaves refusals of other things alone', () => {
    expect(open().refused(refusal('client-9'))).toBe(false);
  });
});
