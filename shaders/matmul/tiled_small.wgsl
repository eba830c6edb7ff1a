// needs: A_ALONG_M, B_ALONG_K
// needs: place_a, place_b, fetch_a, fetch_b
// needs: p, start_of, finish, keep_a, keep_b
// needs: total_panels, store_totals, rows_at, columns_at
// gives: QUARTERS, STEPS, DEPTH
// tiled.wgsl in tiles of 32 x 32, 4 x 4 elements to a lane: half as many multiply-adds for each value read, four times as many
// workgroups. For products that would leave most of a GPU idle. A panel is 32 steps of k, of which a lane fetches a block of
// 4 x 4 of either side.

const TILE = 32u;
const DEPTH = 32u;
const QUARTERS = TILE / 4u;
const STEPS = 4u;  // of k at a time

// The sums of a lane, a row each.
var<private> c0: vec4f;
var<private> c1: vec4f;
var<private> c2: vec4f;
var<private> c3: vec4f;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let across = (p.N + TILE - 1u) / TILE;
  let tile = group.y * groups.x + group.x;
  let tile_row = TILE * (tile / across);
  let tile_column = TILE * (tile % across);
  if (tile_row >= p.M) { return; }
  let high = lane / 8u;
  let low = lane % 8u;
  let at_y = min(high, 7u);
  let at_x = min(low, 7u);
  let row = tile_row + 4u * high;
  let column = tile_column + 4u * low;

  // The block that this lane fetches, neighbours along the side that is contiguous in memory.
  let place_in_a = select(high, low, A_ALONG_M != 0u);
  let depth_in_a = select(low, high, A_ALONG_M != 0u);
  let place_in_b = select(low, high, B_ALONG_K != 0u);
  let depth_in_b = select(high, low, B_ALONG_K != 0u);
  let at_a = place_a(tile_row + 4u * place_in_a);
  let at_b = place_b(tile_column + 4u * place_in_b);

  if (p.accumulate != 0u) {
    c0 = start_of(row, column);
    c1 = start_of(row + 1u, column);
    c2 = start_of(row + 2u, column);
    c3 = start_of(row + 3u, column);
  }
  for (var start = 0u; start < p.K; start += DEPTH) {
    // Steps past K become zeros on both sides.
    let block_a = fetch_a(at_a, start + 4u * depth_in_a);
    let block_b = fetch_b(at_b, start + 4u * depth_in_b);
    workgroupBarrier();
    keep_a(depth_in_a, place_in_a, block_a);
    keep_b(depth_in_b, place_in_b, block_b);
    workgroupBarrier();
    total_panels(start, lane, tile_row, tile_column);
    // Bounds that a compiler sees: all but one read in a loop is then at a constant distance from another's address.
    for (var k = 0u; k < DEPTH / STEPS; k++) {
      let g = min(k, DEPTH / STEPS - 1u);
      add_step(rows_at(g, 0u, at_y, 0u), columns_at(g, 0u, at_x, 0u));
      add_step(rows_at(g, 1u, at_y, 0u), columns_at(g, 1u, at_x, 0u));
      add_step(rows_at(g, 2u, at_y, 0u), columns_at(g, 2u, at_x, 0u));
      add_step(rows_at(g, 3u, at_y, 0u), columns_at(g, 3u, at_x, 0u));
    }
  }
  store_totals(lane, tile_row, tile_column);
  finish(row, column, c0);
  finish(row + 1u, column, c1);
  finish(row + 2u, column, c2);
  finish(row + 3u, column, c3);
}

// One step of k: four rows of A and four columns of B.
fn add_step(a: vec4f, b: vec4f) {
  c0 += a.x * b;
  c1 += a.y * b;
  c2 += a.z * b;
  c3 += a.w * b;
}
