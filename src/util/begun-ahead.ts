// Streams that are taken one after the other, each begun while the one before it is taken: what a stream waits for at its
// beginning is then there.

/** Each of them is taken to its end, or the last. No more than two are open at once, and none when this is over, however it ends. */
export async function* begunAhead<T>(
  streams: readonly (() => AsyncGenerator<T, void>)[],
): AsyncGenerator<AsyncGenerator<T, void>, void> {
  const begin = (i: number) => {
    const stream = streams[i]?.();
    if (!stream) return undefined;
    const first = stream.next();
    // It is awaited later, or never where its taker stops.
    first.catch(() => {});
    return { stream, first };
  };
  let next = begin(0);
  async function* parts(i: number, { stream, first }: NonNullable<typeof next>): AsyncGenerator<T, void> {
    try {
      let part = await first;
      next = begin(i + 1);
      for (; !part.done; part = await stream.next()) yield part.value;
    } finally {
      await stream.return();
    }
  }
  try {
    for (let i = 0; next; i++) {
      const begun: NonNullable<typeof next> = next;
      next = undefined;
      yield parts(i, begun);
    }
  } finally {
    await next?.stream.return();
  }
}
