// needs: TILE_ROWS, TILE_COLUMNS, LANES, DEPTH
// needs: A_ALONG_M, B_ALONG_K
// needs: keep_rows, keep_columns
// needs: place_a, place_b, along_a, along_b, block_a, block_b, last_a, last_b
// needs: p
// gives: fetching, fetch, fetch_last, keep, ROW_QUARTERS, COLUMN_QUARTERS, STEPS
// Blocks of A and B, four rows or columns over four steps of k, on their way into panels in workgroup memory: one of each to a lane.
// Where a side of the tile has fewer than there are lanes, lanes fetch the same, and the first of them keep it.

const STEPS = 4u;  // of k at a time
const ROW_QUARTERS = TILE_ROWS / 4u;
const COLUMN_QUARTERS = TILE_COLUMNS / 4u;
const PANEL_QUARTERS = DEPTH / STEPS;
const BLOCKS_OF_A = ROW_QUARTERS * PANEL_QUARTERS;
const BLOCKS_OF_B = COLUMN_QUARTERS * PANEL_QUARTERS;

// The blocks of a lane: `place` along the tile's side and `depth` along k, both in fours; where those of the first panels lie in A and
// B, and how far it is to the next ones.
struct Fetching {
  place_a: u32, depth_a: u32, place_b: u32, depth_b: u32,
  at_a: vec4u, at_b: vec4u, stride_a: u32, stride_b: u32,
  keeps_a: bool, keeps_b: bool,
}

// Neighbouring lanes' lie along the side that is contiguous in memory.
fn fetching(lane: u32, tile_row: u32, tile_column: u32) -> Fetching {
  let of_a = lane % BLOCKS_OF_A;
  let of_b = lane % BLOCKS_OF_B;
  var f: Fetching;
  f.place_a = select(of_a / PANEL_QUARTERS, of_a % ROW_QUARTERS, A_ALONG_M != 0u);
  f.depth_a = select(of_a % PANEL_QUARTERS, of_a / ROW_QUARTERS, A_ALONG_M != 0u);
  f.place_b = select(of_b % COLUMN_QUARTERS, of_b / PANEL_QUARTERS, B_ALONG_K != 0u);
  f.depth_b = select(of_b / COLUMN_QUARTERS, of_b % PANEL_QUARTERS, B_ALONG_K != 0u);
  f.at_a = place_a(tile_row + 4u * f.place_a) + along_a(STEPS * f.depth_a);
  f.at_b = place_b(tile_column + 4u * f.place_b) + along_b(STEPS * f.depth_b);
  f.stride_a = along_a(DEPTH);
  f.stride_b = along_b(DEPTH);
  f.keeps_a = BLOCKS_OF_A == LANES || lane < BLOCKS_OF_A;
  f.keeps_b = BLOCKS_OF_B == LANES || lane < BLOCKS_OF_B;
  return f;
}

// Of A and of B, a step of k to a column.
struct Blocks { rows: mat4x4f, columns: mat4x4f }

// Of the panels of this number.
fn fetch(f: Fetching, panel: u32) -> Blocks {
  return Blocks(transpose(block_a(f.at_a + panel * f.stride_a)), transpose(block_b(f.at_b + panel * f.stride_b)));
}

// Of the panels behind so many, zeros past K.
fn fetch_last(f: Fetching, panels: u32) -> Blocks {
  let k_a = panels * DEPTH + STEPS * f.depth_a;
  let k_b = panels * DEPTH + STEPS * f.depth_b;
  let rows = transpose(last_a(f.at_a + panels * f.stride_a, k_a));
  let columns = transpose(last_b(f.at_b + panels * f.stride_b, k_b));
  return Blocks(ended(rows, k_a), ended(columns, k_b));
}
fn ended(block: mat4x4f, k: u32) -> mat4x4f {
  let none = vec4f();
  return mat4x4f(select(none, block[0], k < p.K), select(none, block[1], k + 1u < p.K),
                 select(none, block[2], k + 2u < p.K), select(none, block[3], k + 3u < p.K));
}

fn keep(f: Fetching, blocks: Blocks) {
  if (f.keeps_a) {
    keep_rows(f.depth_a, 0u, f.place_a, blocks.rows[0]);
    keep_rows(f.depth_a, 1u, f.place_a, blocks.rows[1]);
    keep_rows(f.depth_a, 2u, f.place_a, blocks.rows[2]);
    keep_rows(f.depth_a, 3u, f.place_a, blocks.rows[3]);
  }
  if (f.keeps_b) {
    keep_columns(f.depth_b, 0u, f.place_b, blocks.columns[0]);
    keep_columns(f.depth_b, 1u, f.place_b, blocks.columns[1]);
    keep_columns(f.depth_b, 2u, f.place_b, blocks.columns[2]);
    keep_columns(f.depth_b, 3u, f.place_b, blocks.columns[3]);
  }
}
