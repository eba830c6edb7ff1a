// needs: p
// needs: Sums, left_at, right_at, add_product
// needs: DEPTH, ROW, LOW, RIGHT, panels, fetch_a, fetch_b, halves_of, split, finish_fragments
// gives: TILE, make_tile
// subgroup_matrix.wgsl in tiles of 32 x 32, a fragment to a subgroup: for products that would leave most of a GPU idle.

const TILE = 32u;

fn make_tile(group: vec3u, groups: vec3u, lane: u32, subgroup: u32) {
  let across = (p.N + TILE - 1u) / TILE;
  let tile = group.y * groups.x + group.x;
  let tile_row = TILE * (tile / across);
  let tile_column = TILE * (tile % across);
  if (tile_row >= p.M) { return; }

  // The eight steps of k that this lane fetches, of a row of each side.
  let line = min(lane / 4u, 31u);
  let eighth = lane % 4u;
  let at_a = (p.a0 + min(tile_row + line, p.M - 1u) * p.a_m) >> 2u;
  let at_b = (p.b0 + min(tile_column + line, p.N - 1u) * p.b_n) >> 2u;
  let place = line * ROW + eighth;

  let quarter = min(subgroup, 3u);
  let upper = 16u * ROW * (quarter / 2u);
  let left = RIGHT + 16u * ROW * (quarter % 2u);
  var sums: Sums;
  var low_sums: Sums;  // of what the first halves of A leave
  for (var start = 0u; start < p.K; start += DEPTH) {
    let k = start + 8u * eighth;
    let a_halves = split(fetch_a(at_a, k));
    let b_halves = halves_of(fetch_b(at_b, k));
    workgroupBarrier();
    panels[place] = a_halves[0];
    panels[LOW + place] = a_halves[1];
    panels[RIGHT + place] = b_halves;
    workgroupBarrier();
    for (var step = 0u; step < DEPTH / 16u; step++) {
      let beside = 2u * min(step, DEPTH / 16u - 1u);
      let right = right_at(left + beside);
      sums = add_product(sums, left_at(upper + beside), right);
      low_sums = add_product(low_sums, left_at(LOW + upper + beside), right);
    }
  }
  finish_fragments(tile_row, tile_column, lane, quarter, sums, low_sums);
}
