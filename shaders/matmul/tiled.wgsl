// needs: TILE_ROWS, TILE_COLUMNS, LANES, DEPTH
// needs: BLOCK_ROWS, BLOCK_COLUMNS, start_sums, add_steps, finish_sums
// needs: fetching, fetch, fetch_last, keep, STEPS, add_panel
// needs: p
// needs: total_panels, store_totals
// C in tiles of TILE_ROWS x TILE_COLUMNS, one to a workgroup, each lane with a block of it in registers; A and B pass through workgroup
// memory in panels of DEPTH steps of k, so that a value fetched is used by a whole row or column of the tile. For GPUs.
// The panels are k-major: at each step of k a lane reads a vec4f or two of either, neighbouring lanes neighbouring ones or the same.

const ACROSS = TILE_COLUMNS / BLOCK_COLUMNS;
const DOWN = TILE_ROWS / BLOCK_ROWS;

// More than there are: a loop whose bound is a constant comes to an end, and is not made to count its rounds for that.
const MOST_PANELS = 0x10000000u;

const_assert ACROSS * DOWN == LANES && ACROSS % 8u == 0u && DOWN % 8u == 0u;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let across = (p.N + TILE_COLUMNS - 1u) / TILE_COLUMNS;
  let tile = group.y * groups.x + group.x;
  let tile_row = TILE_ROWS * (tile / across);
  let tile_column = TILE_COLUMNS * (tile % across);
  if (tile_row >= p.M) { return; }
  // Every 64 lanes have a square of 8 x 8. Bounds that a compiler sees.
  let eight = lane / 64u;
  let y = min(lane / 8u % 8u + 8u * (eight / (ACROSS / 8u)), DOWN - 1u);
  let x = min(lane % 8u + 8u * (eight % (ACROSS / 8u)), ACROSS - 1u);
  let row = tile_row + 4u * y;
  let column = tile_column + 4u * x;
  let own = fetching(lane, tile_row, tile_column);

  if (p.accumulate != 0u) { start_sums(row, column); }
  let panels = p.K / DEPTH;
  for (var panel = 0u; panel < MOST_PANELS; panel++) {
    if (panel >= panels) { break; }
    let blocks = fetch(own, panel);
    workgroupBarrier();
    keep(own, blocks);
    workgroupBarrier();
    total_panels(panel * DEPTH, lane, tile_row, tile_column);
    add_panel(y, x);
  }
  let start = panels * DEPTH;
  if (start < p.K) {
    // Steps past K are zeros on both sides.
    let blocks = fetch_last(own, panels);
    workgroupBarrier();
    keep(own, blocks);
    workgroupBarrier();
    total_panels(start, lane, tile_row, tile_column);
    for (var g = 0u; g < DEPTH / STEPS; g++) { add_steps(min(g, DEPTH / STEPS - 1u), y, x); }
  }
  store_totals(lane, tile_row, tile_column);
  finish_sums(row, column);
}
