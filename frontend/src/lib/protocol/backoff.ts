/** Delay in ms before connection attempt `attempt` (0 is the first retry): exponential, with jitter over the whole range. */
export function reconnectDelay(attempt: number, random: () => number = Math.random): number {
  const ceiling = Math.min(30_000, 500 * 2 ** Math.min(attempt, 10));
  // Never under 200 ms; beyond that spread evenly, so that a restarted server is not hit by everybody at once.
  return Math.round(200 + random() * (ceiling - 200));
}
