/** Keeps a scroller at its end while the person is there, and leaves it alone once they scroll up. */

const AT_END_PX = 48;

export interface Follower {
  toEnd(): void;
}

/**
 * Follows the growth of `content` inside `scroller`. `onAway(true)` when the person has scrolled away from the end.
 * Returns the follower and a function that ends it.
 */
export function follow(scroller: HTMLElement, content: HTMLElement, onAway: (away: boolean) => void) {
  let pinned = true;
  let lastTop = scroller.scrollTop;

  const distance = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight;
  const toEnd = () => {
    pinned = true;
    scroller.scrollTop = scroller.scrollHeight;
    onAway(false);
  };
  const scrolled = () => {
    // Only a movement upwards is the person's wish: growth below moves nothing, and we only ever move down.
    if (distance() <= AT_END_PX) pinned = true;
    else if (scroller.scrollTop < lastTop - 1) pinned = false;
    lastTop = scroller.scrollTop;
    onAway(!pinned && distance() > AT_END_PX);
  };
  const grown = new ResizeObserver(() => {
    if (pinned) scroller.scrollTop = scroller.scrollHeight;
    else onAway(distance() > AT_END_PX);
  });

  scroller.addEventListener('scroll', scrolled, { passive: true });
  grown.observe(content);
  grown.observe(scroller);
  const stop = () => {
    scroller.removeEventListener('scroll', scrolled);
    grown.disconnect();
  };
  return { follower: { toEnd } satisfies Follower, stop };
}
