// needs: a, b
// needs: p, start_of, finish
// needs: Sums, left_at, right_at, add_product, keep_sums
// gives: panels, ROW, LANES, make_tile
// C = A transposed(B) in tiles of 64 x 64 by the matrix units of a GPU: factors of 16 bits, sums of 32. A workgroup is four
// subgroups of 32 lanes, each with 32 x 32 elements in fragments of 16 x 16; A and B pass through workgroup memory in panels of 32
// steps of k, each step of a row beside the next.
//
// B is of 16 bits as it is stored. A, of 32, goes in as two numbers of 16, what the first one leaves being the second: 20 bits or
// more of each element, where it is at least 2^-10; below, steps of 2^-31 at least, of 2^-21 where subnormals of 16 bits become zero.
// Sums of both are apart, so that neither rounds the other away.
// For A, B and their rows in fours, as load_4.wgsl.

const LANES = 128u;
const TILE = 64u;
const DEPTH = 32u;
// In vec4u, of eight halves each; one more than a row of a panel has, so that lanes that read sixteen rows meet in no memory bank.
const ROW = 5u;
const LOW = TILE * ROW;        // where what the first halves of A leave begins
const RIGHT = 2u * TILE * ROW; // where B begins
// Elements of A up to 2^20 are within the range of 16 bits.
const SCALE = 0.0625f;
const LOW_SCALE = 2048f;

var<workgroup> panels: array<vec4u, 3u * TILE * ROW>;

fn make_tile(group: vec3u, groups: vec3u, lane: u32, subgroup: u32) {
  let across = (p.N + TILE - 1u) / TILE;
  let tile = group.y * groups.x + group.x;
  let tile_row = TILE * (tile / across);
  let tile_column = TILE * (tile % across);
  if (tile_row >= p.M) { return; }

  // The eight steps of k that this lane fetches: of a row of each side, and of that 32 further down.
  let line = min(lane / 4u, 31u);
  let eighth = lane % 4u;
  let at_a0 = (p.a0 + min(tile_row + line, p.M - 1u) * p.a_m) >> 2u;
  let at_a1 = (p.a0 + min(tile_row + line + 32u, p.M - 1u) * p.a_m) >> 2u;
  let at_b0 = (p.b0 + min(tile_column + line, p.N - 1u) * p.b_n) >> 2u;
  let at_b1 = (p.b0 + min(tile_column + line + 32u, p.N - 1u) * p.b_n) >> 2u;
  let place = line * ROW + eighth;

  // Of the fragments of this subgroup, those of one row below those of the other.
  let quarter = min(subgroup, 3u);
  let upper = 32u * ROW * (quarter / 2u);
  let left = RIGHT + 32u * ROW * (quarter % 2u);
  var s00: Sums; var s01: Sums; var s10: Sums; var s11: Sums;
  var t00: Sums; var t01: Sums; var t10: Sums; var t11: Sums;  // of what the first halves of A leave
  for (var start = 0u; start < p.K; start += DEPTH) {
    let k = start + 8u * eighth;
    let a0 = fetch_a(at_a0, k);
    let a1 = fetch_a(at_a1, k);
    let b0 = fetch_b(at_b0, k);
    let b1 = fetch_b(at_b1, k);
    workgroupBarrier();
    panels[place] = halves_of(a0);
    panels[place + 32u * ROW] = halves_of(a1);
    panels[LOW + place] = halves_of(left_over(a0));
    panels[LOW + place + 32u * ROW] = halves_of(left_over(a1));
    panels[RIGHT + place] = halves_of(b0);
    panels[RIGHT + place + 32u * ROW] = halves_of(b1);
    workgroupBarrier();
    for (var step = 0u; step < DEPTH / 16u; step++) {
      let beside = 2u * min(step, DEPTH / 16u - 1u);
      let r0 = right_at(left + beside);
      let r1 = right_at(left + 16u * ROW + beside);
      let l0 = left_at(upper + beside);
      s00 = add_product(s00, l0, r0);
      s01 = add_product(s01, l0, r1);
      let l1 = left_at(upper + 16u * ROW + beside);
      s10 = add_product(s10, l1, r0);
      s11 = add_product(s11, l1, r1);
      let m0 = left_at(LOW + upper + beside);
      t00 = add_product(t00, m0, r0);
      t01 = add_product(t01, m0, r1);
      let m1 = left_at(LOW + upper + 16u * ROW + beside);
      t10 = add_product(t10, m1, r0);
      t11 = add_product(t11, m1, r1);
    }
  }
  finish_fragments(tile_row, tile_column, lane, quarter, s00, t00);
  finish_fragments(tile_row, tile_column + 16u, lane, quarter, s01, t01);
  finish_fragments(tile_row + 16u, tile_column, lane, quarter, s10, t10);
  finish_fragments(tile_row + 16u, tile_column + 16u, lane, quarter, s11, t11);
}

// Eight steps of k of a row; past K they are zeros.
fn fetch_a(at: u32, k: u32) -> mat2x4f {
  let i = at + (k >> 2u);
  return mat2x4f(select(vec4f(), a[i], k < p.K), select(vec4f(), a[i + 1u], k + 4u < p.K)) * SCALE;
}
fn fetch_b(at: u32, k: u32) -> mat2x4f {
  let i = at + (k >> 2u);
  return mat2x4f(select(vec4f(), b[i], k < p.K), select(vec4f(), b[i + 1u], k + 4u < p.K));
}

fn halves_of(values: mat2x4f) -> vec4u {
  return vec4u(pack2x16float(values[0].xy), pack2x16float(values[0].zw), pack2x16float(values[1].xy), pack2x16float(values[1].zw));
}

// What these halves leave of the values.
fn left_over(values: mat2x4f) -> mat2x4f {
  let halves = halves_of(values);
  return (values - mat2x4f(vec4f(unpack2x16float(halves.x), unpack2x16float(halves.y)),
                           vec4f(unpack2x16float(halves.z), unpack2x16float(halves.w)))) * LOW_SCALE;
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
    let m = row + 32u * (fragment / 2u) + (i % 64u) / 4u;
    let n = column + 32u * (fragment % 2u) + 4u * (i % 4u);
    finish(m, n, start_of(m, n) + values);
  }
}
