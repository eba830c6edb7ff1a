// needs: a, b
// needs: p, start_of, finish
// needs: TILE, Sums, keep_sums
// gives: LANES, DEPTH, ROW, LOW, RIGHT, panels, fetch_a, fetch_b, halves_of, split, finish_fragments
// What products by the matrix units of a GPU share: factors of 16 bits, sums of 32. A workgroup is four subgroups of 32 lanes, two
// beside each other and two below; A and B pass through workgroup memory in panels of 32 steps of k, each step of a row beside the
// next.
//
// B is of 16 bits as it is stored. A, of 32, goes in as two numbers of 16, the second being what the first one leaves: together 20
// bits or more of each element, or multiples of 2^-31; of 2^-21 on a GPU whose units take subnormal numbers for zero. Their sums are
// apart, so that neither rounds the other away.
// For A, B and their rows in fours, as load_4.wgsl.

const LANES = 128u;
const DEPTH = 32u;
// In vec4u, of eight halves each; one more than a row of a panel has, so that lanes that read sixteen rows meet in no memory bank.
const ROW = 5u;
const LOW = TILE * ROW;        // where what the first halves of A leave begins
const RIGHT = 2u * TILE * ROW; // where B begins
// Elements of A below 2^20 are within the range of 16 bits.
const SCALE = 0.0625f;
const LOW_SCALE = 2048f;
const SMALLEST_NORMAL = 6.103515625e-5f; // of a half, 2^-14

var<workgroup> panels: array<vec4u, max(3u * TILE * ROW, 512u)>;

// Eight steps of k of a row; past K they are zeros.
fn fetch_a(at: u32, k: u32) -> mat2x4f {
  let i = at + (min(vec2u(k, k + 4u), vec2u(p.K - 4u)) >> vec2u(2u));
  return mat2x4f(select(vec4f(), a[i.x], k < p.K), select(vec4f(), a[i.y], k + 4u < p.K)) * SCALE;
}
fn fetch_b(at: u32, k: u32) -> mat2x4f {
  let i = at + (min(vec2u(k, k + 4u), vec2u(p.K - 4u)) >> vec2u(2u));
  return mat2x4f(select(vec4f(), b[i.x], k < p.K), select(vec4f(), b[i.y], k + 4u < p.K));
}

fn halves_of(values: mat2x4f) -> vec4u {
  return vec4u(pack2x16float(values[0].xy), pack2x16float(values[0].zw), pack2x16float(values[1].xy), pack2x16float(values[1].zw));
}

// What the first halves leave of the values. These have the upper bits alone, which are exact in a half, or nothing below its
// normal numbers: bits, since compilers take what is packed and unpacked again for what it was.
fn first_of(values: vec4f) -> vec4f {
  let upper = bitcast<vec4f>(bitcast<vec4u>(values) & vec4u(0xffffe000u));
  return select(vec4f(), upper, abs(values) >= vec4f(SMALLEST_NORMAL));
}
fn split(values: mat2x4f) -> array<vec4u, 2> {
  let first = mat2x4f(first_of(values[0]), first_of(values[1]));
  return array<vec4u, 2>(halves_of(first), halves_of((values - first) * LOW_SCALE));
}

// Of each subgroup one fragment, the first of them from there on.
fn finish_fragments(row: u32, column: u32, lane: u32, quarter: u32, sums: Sums, low_sums: Sums) {
  workgroupBarrier();
  keep_sums(128u * quarter, sums);
  keep_sums(128u * quarter + 64u, low_sums);
  workgroupBarrier();
  for (var i = lane; i < 256u; i += LANES) {
    let fragment = i / 64u;
    let at = 128u * fragment + i % 64u;
    let values = (bitcast<vec4f>(panels[at]) + bitcast<vec4f>(panels[at + 64u]) / LOW_SCALE) / SCALE;
    let m = row + TILE / 2u * (fragment / 2u) + (i % 64u) / 4u;
    let n = column + TILE / 2u * (fragment % 2u) + 4u * (i % 4u);
    finish(m, n, start_of(m, n) + values);
  }
}
