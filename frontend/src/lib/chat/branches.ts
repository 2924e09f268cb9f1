/** A conversation is a tree of messages; what is on the screen is one path through it. */

export interface Node {
  readonly id: string;
  readonly parentId: string | null;
  readonly created: string;
}

const ROOT = '';

/** The children of every message, oldest first; the conversation's start is the child list of null. */
export class Branches<T extends Node> {
  #children = new Map<string, T[]>();
  #newest = new Map<string, T>();
  #byId: ReadonlyMap<string, T>;

  constructor(byId: ReadonlyMap<string, T>) {
    this.#byId = byId;
    const ordered = [...byId.values()].sort(byCreation);
    for (const node of ordered) {
      const siblings = this.#children.get(node.parentId ?? ROOT);
      if (siblings) siblings.push(node);
      else this.#children.set(node.parentId ?? ROOT, [node]);
    }
    for (const node of ordered.reverse()) this.#leadTo(node);
  }

  /** Each walk up ends where a newer message has passed, so all walks together touch each message once. */
  #leadTo(newest: T): void {
    let node: T | undefined = newest;
    while (node !== undefined && !this.#newest.has(node.parentId ?? ROOT)) {
      this.#newest.set(node.parentId ?? ROOT, node);
      node = node.parentId === null ? undefined : this.#byId.get(node.parentId);
    }
  }

  siblings(node: Node): readonly T[] {
    return this.#children.get(node.parentId ?? ROOT) ?? [];
  }

  /** From the start to a leaf: the chosen child where one was chosen, else the one that leads to the newest message. */
  path(chosen: ReadonlyMap<string, string>): T[] {
    const path: T[] = [];
    let parent = ROOT;
    for (;;) {
      const choice = this.#byId.get(chosen.get(parent) ?? '');
      const node = choice && (choice.parentId ?? ROOT) === parent ? choice : this.#newest.get(parent);
      if (node === undefined) return path;
      path.push(node);
      parent = node.id;
    }
  }
}

/** The choices that make the path pass through `id`, on top of earlier choices. */
export function choose(byId: ReadonlyMap<string, Node>, chosen: ReadonlyMap<string, string>, id: string) {
  const next = new Map(chosen);
  for (let node = byId.get(id); node !== undefined; node = byId.get(node.parentId ?? ROOT)) {
    next.set(node.parentId ?? ROOT, node.id);
  }
  return next;
}

function byCreation(one: Node, other: Node): number {
  return one.created < other.created ? -1 : one.created > other.created ? 1 : 0;
}
