// A number of things in words.

/** `1 token`, `2 tokens`, `3 batches`. `shown`: its digits. */
export const counted = (count: number, thing: string, shown = String(count)): string =>
  `${shown} ${thing}${count === 1 ? '' : /(?:ch|s)$/.test(thing) ? 'es' : 's'}`;
