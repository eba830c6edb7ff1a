// needs: TILE_ROWS, TILE_COLUMNS
// needs: start_of, finish, rows_at, columns_at
// gives: BLOCK_ROWS, BLOCK_COLUMNS, start_sums, add_steps, finish_sums
// The sums of a lane, 8 x 8: of four rows, and those half a tile further down; of four columns, and those half a tile further on.
// For 64 multiply-adds it reads four vec4f. Every sum has a name: where they were indexed, an H100 took up to half as long again.

const BLOCK_ROWS = 8u;
const BLOCK_COLUMNS = 8u;
const DOWN_HALF = TILE_ROWS / 2u;
const ON_HALF = TILE_COLUMNS / 2u;

var<private> l0: vec4f; var<private> l1: vec4f; var<private> l2: vec4f; var<private> l3: vec4f;
var<private> l4: vec4f; var<private> l5: vec4f; var<private> l6: vec4f; var<private> l7: vec4f;
var<private> r0: vec4f; var<private> r1: vec4f; var<private> r2: vec4f; var<private> r3: vec4f;
var<private> r4: vec4f; var<private> r5: vec4f; var<private> r6: vec4f; var<private> r7: vec4f;

fn start_sums(row: u32, column: u32) {
  let low = row + DOWN_HALF;
  let right = column + ON_HALF;
  l0 = start_of(row, column); r0 = start_of(row, right);
  l1 = start_of(row + 1u, column); r1 = start_of(row + 1u, right);
  l2 = start_of(row + 2u, column); r2 = start_of(row + 2u, right);
  l3 = start_of(row + 3u, column); r3 = start_of(row + 3u, right);
  l4 = start_of(low, column); r4 = start_of(low, right);
  l5 = start_of(low + 1u, column); r5 = start_of(low + 1u, right);
  l6 = start_of(low + 2u, column); r6 = start_of(low + 2u, right);
  l7 = start_of(low + 3u, column); r7 = start_of(low + 3u, right);
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

fn finish_sums(row: u32, column: u32) {
  let low = row + DOWN_HALF;
  let right = column + ON_HALF;
  finish(row, column, l0); finish(row, right, r0);
  finish(row + 1u, column, l1); finish(row + 1u, right, r1);
  finish(row + 2u, column, l2); finish(row + 2u, right, r2);
  finish(row + 3u, column, l3); finish(row + 3u, right, r3);
  finish(low, column, l4); finish(low, right, r4);
  finish(low + 1u, column, l5); finish(low + 1u, right, r5);
  finish(low + 2u, column, l6); finish(low + 2u, right, r6);
  finish(low + 3u, column, l7); finish(low + 3u, right, r7);
}
