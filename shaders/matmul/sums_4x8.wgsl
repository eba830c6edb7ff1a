// needs: TILE_COLUMNS
// needs: start_of, finish, rows_at, columns_at
// gives: BLOCK_ROWS, BLOCK_COLUMNS, start_sums, add_steps, finish_sums
// The sums of a lane, 4 x 8: of four columns, and those half a tile further on. For 32 multiply-adds it reads three vec4f.

const BLOCK_ROWS = 4u;
const BLOCK_COLUMNS = 8u;
const ON_HALF = TILE_COLUMNS / 2u;

var<private> l0: vec4f; var<private> l1: vec4f; var<private> l2: vec4f; var<private> l3: vec4f;
var<private> r0: vec4f; var<private> r1: vec4f; var<private> r2: vec4f; var<private> r3: vec4f;

fn start_sums(row: u32, column: u32) {
  let right = column + ON_HALF;
  l0 = start_of(row, column); r0 = start_of(row, right);
  l1 = start_of(row + 1u, column); r1 = start_of(row + 1u, right);
  l2 = start_of(row + 2u, column); r2 = start_of(row + 2u, right);
  l3 = start_of(row + 3u, column); r3 = start_of(row + 3u, right);
}

// Four steps of k, of which g is the quarter of a panel.
fn add_steps(g: u32, y: u32, x: u32) {
  add_step(rows_at(g, 0u, y, 0u), columns_at(g, 0u, x, 0u), columns_at(g, 0u, x, 1u));
  add_step(rows_at(g, 1u, y, 0u), columns_at(g, 1u, x, 0u), columns_at(g, 1u, x, 1u));
  add_step(rows_at(g, 2u, y, 0u), columns_at(g, 2u, x, 0u), columns_at(g, 2u, x, 1u));
  add_step(rows_at(g, 3u, y, 0u), columns_at(g, 3u, x, 0u), columns_at(g, 3u, x, 1u));
}

// One step of k: four rows of A and eight columns of B.
fn add_step(a: vec4f, b0: vec4f, b1: vec4f) {
  l0 += a.x * b0; r0 += a.x * b1;
  l1 += a.y * b0; r1 += a.y * b1;
  l2 += a.z * b0; r2 += a.z * b1;
  l3 += a.w * b0; r3 += a.w * b1;
}

fn finish_sums(row: u32, column: u32) {
  let right = column + ON_HALF;
  finish(row, column, l0); finish(row, right, r0);
  finish(row + 1u, column, l1); finish(row + 1u, right, r1);
  finish(row + 2u, column, l2); finish(row + 2u, right, r2);
  finish(row + 3u, column, l3); finish(row + 3u, right, r3);
}
