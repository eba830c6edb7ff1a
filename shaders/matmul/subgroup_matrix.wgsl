// needs: p
// needs: Sums, left_at, right_at, add_product
// needs: DEPTH, ROW, LOW, RIGHT, panels, fetch_a, fetch_b, halves_of, split, finish_fragments
// gives: TILE, make_tile
// C = A transposed(B) in tiles of 64 x 64 by the matrix units of a GPU: each subgroup has 32 x 32 elements in fragments of 16 x 16.

const TILE = 64u;

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
    let a0 = split(fetch_a(at_a0, k));
    let a1 = split(fetch_a(at_a1, k));
    let b0 = fetch_b(at_b0, k);
    let b1 = fetch_b(at_b1, k);
    workgroupBarrier();
    panels[place] = a0[0];
    panels[place + 32u * ROW] = a1[0];
    panels[LOW + place] = a0[1];
    panels[LOW + place + 32u * ROW] = a1[1];
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
