// @vitest-environment node
import { describe, expect, it } from 'vitest';
import { Branches, choose, type Node } from '../src/lib/chat/branches';

const node = (id: string, parentId: string | null, minute: number): Node => ({
  ...{ id, parentId, created: `2026-01-01T00:${String(minute).padStart(2, '0')}:00Z` },
});

/** q1 -> a1 -> q2 -> a2; a1 was answered again as a1b; q2 was edited as q2b -> a2b, the newest. */
const tree = new Map(
  [
    ...[node('q1', null, 1), node('a1', 'q1', 1), node('a1b', 'q1', 2)],
    ...[node('q2', 'a1', 3), node('a2', 'q2', 3), node('q2b', 'a1', 4), node('a2b', 'q2b', 4)],
  ].map((each) => [each.id, each]),
);

const path = (chosen: ReadonlyMap<string, string> = new Map()) =>
  new Branches(tree).path(chosen).map((each) => each.id);

describe('the path through a conversation', () => {
  it('leads to the newest message', () => {
    expect(path()).toEqual(['q1', 'a1', 'q2b', 'a2b']);
  });

  it('follows a choice, and the newest below it', () => {
    expect(path(new Map([['a1', 'q2']]))).toEqual(['q1', 'a1', 'q2', 'a2']);
    expect(path(new Map([['q1', 'a1b']]))).toEqual(['q1', 'a1b']);
  });

  it('remembers choices in branches that are not shown', () => {
    const first = choose(tree, new Map(), 'a2');
    const second = choose(tree, first, 'a1b');
    expect(path(second)).toEqual(['q1', 'a1b']);
    expect(path(choose(tree, second, 'a1'))).toEqual(['q1', 'a1', 'q2', 'a2']);
  });

  it('forgets a choice that is gone', () => {
    expect(path(new Map([['a1', 'deleted']]))).toEqual(['q1', 'a1', 'q2b', 'a2b']);
  });

  it('is empty for an empty conversation', () => {
    expect(new Branches(new Map()).path(new Map())).toEqual([]);
  });

  it('lists alternatives, oldest first', () => {
    const branches = new Branches(tree);
    expect(branches.siblings(tree.get('q2b')!).map((each) => each.id)).toEqual(['q2', 'q2b']);
  });

  it('takes a long conversation in stride', () => {
    let looked = 0;
    class Counted extends Map<string, Node> {
      override get(id: string) {
        looked += 1;
        return super.get(id);
      }
    }
    const long = new Counted();
    for (let index = 0; index < 20_000; index += 1) {
      long.set(`n${index}`, { ...node(`n${index}`, index ? `n${index - 1}` : null, 0), created: String(1e6 + index) });
    }
    expect(new Branches(long).path(new Map())).toHaveLength(20_000);
    expect(looked).toBeLessThan(3 * 20_000);
  });
});
