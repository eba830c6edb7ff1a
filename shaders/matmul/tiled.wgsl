// needs: A_ALONG_M, B_ALONG_K
// needs: place_a, place_b, fetch_a, fetch_b
// needs: p, start_of, finish, keep_a, keep_b, add_panel
// needs: total_panels, store_totals, rows_at, columns_at
// gives: add_steps, QUARTERS, STEPS, DEPTH
// C in tiles of 64 x 64, one to a workgroup of 8 x 8 lanes, each with 8 x 8 elements in registers; A and B pass
// through workgroup memory in panels of 16 steps of k, so that a value fetched is used 64 times. For GPUs.
// The panels are k-major: at each step of k a lane reads two vec4f of either for 64 multiply-adds. Its rows are
// 4 y .. + 3 and those 32 further down, its columns likewise, so that neighbouring lanes read neighbouring
// vec4f or the same one. Lanes fetch 4 x 4 blocks, neighbours along the side that is contiguous in memory. Every sum has a name:
// where they were indexed, an H100 took up to half as long again.

const TILE = 64u;
const DEPTH = 16u;
const QUARTERS = TILE / 4u;
const STEPS = 4u;  // of k at a time

// The sums of a lane: of its eight rows columns 0..3, then columns 32..35.
var<private> l0: vec4f; var<private> l1: vec4f; var<private> l2: vec4f; var<private> l3: vec4f;
var<private> l4: vec4f; var<private> l5: vec4f; var<private> l6: vec4f; var<private> l7: vec4f;
var<private> r0: vec4f; var<private> r1: vec4f; var<private> r2: vec4f; var<private> r3: vec4f;
var<private> r4: vec4f; var<private> r5: vec4f; var<private> r6: vec4f; var<private> r7: vec4f;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let across = (p.N + TILE - 1u) / TILE;
  let tile = group.y * groups.x + group.x;
  let tile_row = TILE * (tile / across);
  let tile_column = TILE * (tile % across);
  if (tile_row >= p.M) { return; }
  let y = lane / 8u;
  let x = lane % 8u;
  let at_y = min(y, 7u);
  let at_x = min(x, 7u);
  let row = tile_row + 4u * y;
  let column = tile_column + 4u * x;

  // The block that this lane fetches: `place` along the tile's side, `depth` along k, both in fours.
  let place_in_a = select(lane / 4u, lane % QUARTERS, A_ALONG_M != 0u);
  let depth_in_a = select(lane % 4u, lane / QUARTERS, A_ALONG_M != 0u);
  let place_in_b = select(lane % QUARTERS, lane / 4u, B_ALONG_K != 0u);
  let depth_in_b = select(lane / QUARTERS, lane % 4u, B_ALONG_K != 0u);
  let at_a = place_a(tile_row + 4u * place_in_a);
  let at_b = place_b(tile_column + 4u * place_in_b);

  if (p.accumulate != 0u) {
    l0 = start_of(row, column); r0 = start_of(row, column + 32u);
    l1 = start_of(row + 1u, column); r1 = start_of(row + 1u, column + 32u);
    l2 = start_of(row + 2u, column); r2 = start_of(row + 2u, column + 32u);
    l3 = start_of(row + 3u, column); r3 = start_of(row + 3u, column + 32u);
    l4 = start_of(row + 32u, column); r4 = start_of(row + 32u, column + 32u);
    l5 = start_of(row + 33u, column); r5 = start_of(row + 33u, column + 32u);
    l6 = start_of(row + 34u, column); r6 = start_of(row + 34u, column + 32u);
    l7 = start_of(row + 35u, column); r7 = start_of(row + 35u, column + 32u);
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
    add_panel(at_y, at_x);
  }
  store_totals(lane, tile_row, tile_column);
  finish(row, column, l0); finish(row, column + 32u, r0);
  finish(row + 1u, column, l1); finish(row + 1u, column + 32u, r1);
  finish(row + 2u, column, l2); finish(row + 2u, column + 32u, r2);
  finish(row + 3u, column, l3); finish(row + 3u, column + 32u, r3);
  finish(row + 32u, column, l4); finish(row + 32u, column + 32u, r4);
  finish(row + 33u, column, l5); finish(row + 33u, column + 32u, r5);
  finish(row + 34u, column, l6); finish(row + 34u, column + 32u, r6);
  finish(row + 35u, column, l7); finish(row + 35u, column + 32u, r7);
}

// Four steps of k, of which g is the quarter of a panel.
fn add_steps(g: u32, y: u32, x: u32) {
  add_step(rows_at(g, 0u, y, 0u), rows_at(g, 0u, y, 1u), columns_at(g, 0u, x, 0u), columns_at(g, 0u, x, 1u));
  add_step(rows_at(g, 1u, y, 0u), rows_at(g, 1u, y, 1u), columns_at(g, 1u, x, 0u), columns_at(g, 1u, x, 1u));
  add_step(rows_at(g, 2u, y, 0u), rows_at(g, 2u, y, 1u), columns_at(g, 2u, x, 0u), columns_at(g, 2u, x, 1u));
  add_step(rows_at(g, 3u, y, 0u), rows_at(g, 3u, y, 1u), columns_at(g, 3u, x, 0u), columns_at(g, 3u, x, 1u));
}

// One step of k: eight rows of A and eight columns of B.
fn add_step(a0: vec4f, a1: vec4f, b0: vec4f, b1: vec4f) {
  l0 += a0.x * b0; r0 += a0.x * b1;
  l1 += a0.y * b0; r1 += a0.y * b1;
  l2 += a0.z * b0; r2 += a0.z * b1;
  l3 += a0.w * b0; r3 += a0.w * b1;
  l4 += a1.x * b0; r4 += a1.x * b1;
  l5 += a1.y * b0; r5 += a1.y * b1;
  l6 += a1.z * b0; r6 += a1.z * b1;
  l7 += a1.w * b0; r7 += a1.w * b1;
}
