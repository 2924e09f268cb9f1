/** Collects what changed and shows it once per frame: a fast stream costs one render a frame, not one a token. */
export interface Publishable {
  publish(): void;
}

export class FrameQueue {
  #dirty = new Set<Publishable>();
  #scheduled = false;

  constructor(private readonly nextFrame: (run: () => void) => void = requestFrame) {}

  add(item: Publishable): void {
    this.#dirty.add(item);
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.nextFrame(() => this.flush());
  }

  flush(): void {
    this.#scheduled = false;
    const items = [...this.#dirty];
    this.#dirty.clear();
    for (const item of items) item.publish();
  }
}

function requestFrame(run: () => void): void {
  // A hidden page draws no frames, yet its title and its text have to move on.
  if (document.visibilityState === 'hidden') setTimeout(run, 250);
  else requestAnimationFrame(run);
}
