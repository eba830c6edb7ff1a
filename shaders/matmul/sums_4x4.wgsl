// needs: start_of, finish, rows_at, columns_at
// gives: BLOCK_ROWS, BLOCK_COLUMNS, start_sums, add_steps, finish_sums
// The sums of a lane, 4 x 4: half as many multiply-adds for each value read as of 8 x 8, and four times as many lanes.

const BLOCK_ROWS = 4u;
const BLOCK_COLUMNS = 4u;

// A row each.
var<private> c0: vec4f; var<private> c1: vec4f; var<private> c2: vec4f; var<private> c3: vec4f;

fn start_sums(row: u32, column: u32) {
  c0 = start_of(row, column);
  c1 = start_of(row + 1u, column);
  c2 = start_of(row + 2u, column);
  c3 = start_of(row + 3u, column);
}

// Four steps of k, of which g is the quarter of a panel.
fn add_steps(g: u32, y: u32, x: u32) {
  add_step(rows_at(g, 0u, y, 0u), columns_at(g, 0u, x, 0u));
  add_step(rows_at(g, 1u, y, 0u), columns_at(g, 1u, x, 0u));
  add_step(rows_at(g, 2u, y, 0u), columns_at(g, 2u, x, 0u));
  add_step(rows_at(g, 3u, y, 0u), columns_at(g, 3u, x, 0u));
}

// One step of k: four rows of A and four columns of B.
fn add_step(a: vec4f, b: vec4f) {
  c0 += a.x * b;
  c1 += a.y * b;
  c2 += a.z * b;
  c3 += a.w * b;
}

fn finish_sums(row: u32, column: u32) {
  finish(row, column, c0);
  finish(row + 1u, column, c1);
  finish(row + 2u, column, c2);
  finish(row + 3u, column, c3);
}
