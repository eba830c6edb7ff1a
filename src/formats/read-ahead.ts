// Parts of a file, one after the other, each read while the one before is used. Invariant: nothing is being read any more
// when it is over, however it ends: the file may be closed then.

/** What `readAt` brings for 0, `step`, 2 * `step` and so on below `count`. */
export async function* readAhead<T>(
  count: number,
  step: number,
  readAt: (first: number, count: number) => Promise<T>,
): AsyncGenerator<T, void> {
  const begin = (first: number): Promise<T> | undefined => {
    if (first >= count) return undefined;
    const part = readAt(first, Math.min(step, count - first));
    // It is awaited later, or never where its taker stops.
    part.catch(() => {});
    return part;
  };
  let next = begin(0);
  try {
    for (let first = 0; next; first += step) {
      const part: T = await next;
      next = begin(first + step);
      yield part;
    }
  } finally {
    await next?.catch(() => {});
  }
}
