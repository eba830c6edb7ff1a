// needs: TOTALS_OF_A
// needs: rows_at, columns_at, ROW_QUARTERS, COLUMN_QUARTERS, STEPS, DEPTH
// needs: p
// gives: total_panels, store_totals
// totals_lanes.wgsl from panels in workgroup memory, with its bits: the first tile of a row or column sums what passes through them
// anyway. A lane has one of the four running sums of four rows or columns; the first lanes combine them. p.block is a multiple
// of DEPTH.

@group(0) @binding(4) var<storage, read_write> totals: array<f32>;  // (M) of A, or (N) of B, from totals0

const SIDE = ROW_QUARTERS * TOTALS_OF_A + COLUMN_QUARTERS * (1u - TOTALS_OF_A);  // quarters of it

var<workgroup> running_sums: array<array<vec4f, SIDE>, STEPS>;
var<private> running: vec4f;  // over the steps of a block
var<private> total: vec4f;    // over the blocks

fn panel_side(g: u32, i: u32, quarter: u32) -> vec4f {
  if (TOTALS_OF_A != 0u) { return rows_at(g, i, quarter % (SIDE / 2u), quarter / (SIDE / 2u)); }
  return columns_at(g, i, quarter % (SIDE / 2u), quarter / (SIDE / 2u));
}

fn all_of(quarter: u32) -> vec4f {
  return (running_sums[0][quarter] + running_sums[1][quarter]) + (running_sums[2][quarter] + running_sums[3][quarter]);
}

// Of the panels that begin at this step of k, when they are there.
fn total_panels(start: u32, lane: u32, tile_row: u32, tile_column: u32) {
  if (select(tile_row, tile_column, TOTALS_OF_A != 0u) != 0u) { return; }
  let quarter = lane % SIDE;
  let i = lane / SIDE;
  if (i < STEPS) {
    for (var g = 0u; g < DEPTH / STEPS; g++) { running += panel_side(g, i, quarter); }
  }
  let end = start + DEPTH;
  if (end % p.block != 0u && end < p.K) { return; }
  if (i < STEPS) { running_sums[i][quarter] = running; }
  running = vec4f();
  workgroupBarrier();
  let block = start / p.block;
  let blocks = (p.K + p.block - 1u) / p.block;
  // What is left of the last four is the first sum's.
  if (i == select(0u, block % STEPS, block < blocks - blocks % STEPS)) { total += all_of(quarter); }
}

fn store_totals(lane: u32, tile_row: u32, tile_column: u32) {
  if (select(tile_row, tile_column, TOTALS_OF_A != 0u) != 0u) { return; }
  let quarter = lane % SIDE;
  workgroupBarrier();
  if (lane < SIDE * STEPS) { running_sums[lane / SIDE][quarter] = total; }
  workgroupBarrier();
  if (lane >= SIDE) { return; }
  let all = all_of(quarter);
  let first = select(tile_column, tile_row, TOTALS_OF_A != 0u) + 4u * quarter;
  let size = select(p.N, p.M, TOTALS_OF_A != 0u);
  for (var j = 0u; j < min(4u, max(first, size) - first); j++) {
    var sum = all[j];
    if (p.accumulate_totals != 0u) { sum += totals[p.totals0 + first + j]; }
    totals[p.totals0 + first + j] = sum;
  }
}
