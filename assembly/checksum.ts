// The rounds of src/memory/tiers/checksum.ts in AssemblyScript, thirty-two lanes side by side. Not TypeScript: config/assembly.ts
// compiles it to a WebAssembly module.

/** Takes a multiple of 32 words at `words` into the lanes, which lie at `lanes`: eight vectors hide how long a product takes. */
export function takeStripes(lanes: usize, words: usize, count: usize): void {
  const end: usize = words + (count << 2);
  let a = v128.load(lanes);
  let b = v128.load(lanes, 16);
  let c = v128.load(lanes, 32);
  let d = v128.load(lanes, 48);
  let e = v128.load(lanes, 64);
  let f = v128.load(lanes, 80);
  let g = v128.load(lanes, 96);
  let h = v128.load(lanes, 112);
  for (; words < end; words += 128) {
    a = round(a, v128.load(words));
    b = round(b, v128.load(words, 16));
    c = round(c, v128.load(words, 32));
    d = round(d, v128.load(words, 48));
    e = round(e, v128.load(words, 64));
    f = round(f, v128.load(words, 80));
    g = round(g, v128.load(words, 96));
    h = round(h, v128.load(words, 112));
  }
  v128.store(lanes, a);
  v128.store(lanes, b, 16);
  v128.store(lanes, c, 32);
  v128.store(lanes, d, 48);
  v128.store(lanes, e, 64);
  v128.store(lanes, f, 80);
  v128.store(lanes, g, 96);
  v128.store(lanes, h, 112);
}

// @ts-ignore: a decorator of AssemblyScript
@inline
function round(lane: v128, words: v128): v128 {
  const sum = i32x4.add(lane, i32x4.mul(words, i32x4.splat(0x85ebca77)));
  return i32x4.mul(v128.or(i32x4.shl(sum, 13), i32x4.shr_u(sum, 19)), i32x4.splat(0x9e3779b1));
}
