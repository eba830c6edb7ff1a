// A heap of pairs by how often they occur: the most frequent first, of equal ones that with the lower number. Entries are
// never changed: what has another count is pushed anew, and an entry that is taken out must be compared with what is true by then.

export interface CountedPair {
  readonly count: number;
  readonly pair: number;
}

const isBefore = (a: CountedPair, b: CountedPair): boolean =>
  a.count > b.count || (a.count === b.count && a.pair < b.pair);

export class BpeHeap {
  readonly #items: CountedPair[] = [];

  push(count: number, pair: number): void {
    const item = { count, pair };
    const items = this.#items;
    let at = items.push(item) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const other = items[above];
      if (!other || !isBefore(item, other)) break;
      items[at] = other;
      at = above;
    }
    items[at] = item;
  }

  pop(): CountedPair | undefined {
    const items = this.#items;
    const [top] = items;
    const last = items.pop();
    if (!last || items.length === 0) return top;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      const [a, b] = [items[left], items[left + 1]];
      const below = a && b && isBefore(b, a) ? left + 1 : left;
      const other = items[below];
      if (!other || !isBefore(other, last)) break;
      items[at] = other;
      at = below;
    }
    items[at] = last;
    return top;
  }
}
