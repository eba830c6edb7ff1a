// needs: DIMS
// gives: ROWS, DEPTH, CHUNKS, panel_a, panel_b, dot_from, eighth, put_panels, meet, put_tile, own_tile, put_values, gather, rows_of
// What the tiled kernels of attention share, for GPUs: a workgroup of 8 x 8 lanes works on 32 x 32 pairs of a
// query and a key. Lane (x, y) holds a 4 x 4 tile: rows y, y + 8, y + 16, y + 24 of the one side against rows
// x, x + 8, x + 16, x + 24 of the other, so that neighbouring lanes read neighbouring vec4f. Rows pass through
// workgroup memory 16 dims at a time, which makes its size (12.4 KB) independent of the head's. Loops have
// constant bounds, and what is not there counts as 0: half of what a loop did without that was not arithmetic.

const ROWS = 32u;
const DEPTH = 4u;                      // vec4f of a panel's row
const CHUNKS = (DIMS + 7u) / 8u;       // a lane sums the vec4f x, x + 8, ... of its rows

// One vec4f more than the 32 of a row: lanes that write a column meet in fewer memory banks.
var<workgroup> panel_a: array<array<vec4f, ROWS + 1>, DEPTH>;           // (dim / 4, row)
var<workgroup> panel_b: array<array<vec4f, ROWS + 1>, DEPTH>;           // (dim / 4, row)
var<workgroup> panel_c: array<array<array<vec4f, 8>, 4>, ROWS / 4>;     // (row of the other side / 4, % 4, dim / 4)
var<workgroup> tile: array<array<array<vec4f, 8>, 4>, ROWS / 4>;        // (row of the other side / 4, % 4, y), of 4 own rows

// One chain of multiply-adds, for delta and for dy.v: that of a lone key cancels its delta exactly.
fn dot_from(acc: f32, a: vec4f, b: vec4f) -> f32 { return acc + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

fn row_from(acc: vec4f, a: vec4f, b: mat4x4f) -> vec4f {
  return vec4f(dot_from(acc.x, a, b[0]), dot_from(acc.y, a, b[1]), dot_from(acc.z, a, b[2]), dot_from(acc.w, a, b[3]));
}

// A lane's column of eight: a bound that a compiler sees lets it read at constant distances from one address.
fn eighth(i: u32) -> u32 { return min(i, 7u); }

// acc[i][j] + the dot products over a pair of panels
fn meet(acc: mat4x4f, y: u32, x: u32) -> mat4x4f {
  var s = acc;
  for (var d = 0u; d < DEPTH; d++) {
    let b = mat4x4f(panel_b[d][x], panel_b[d][x + 8u], panel_b[d][x + 16u], panel_b[d][x + 24u]);
    s = mat4x4f(row_from(s[0], panel_a[d][y], b), row_from(s[1], panel_a[d][y + 8u], b),
                row_from(s[2], panel_a[d][y + 16u], b), row_from(s[3], panel_a[d][y + 24u], b));
  }
  return s;
}

fn put_tile(s: mat4x4f, y: u32, x: u32) {
  let t = transpose(s);
  tile[x / 4u][x % 4u][y] = t[0];
  tile[x / 4u + 2u][x % 4u][y] = t[1];
  tile[x / 4u + 4u][x % 4u][y] = t[2];
  tile[x / 4u + 6u][x % 4u][y] = t[3];
}

// What put_tile has put for this lane.
fn own_tile(y: u32, x: u32) -> mat4x4f {
  return transpose(mat4x4f(tile[x / 4u][x % 4u][y], tile[x / 4u + 2u][x % 4u][y], tile[x / 4u + 4u][x % 4u][y], tile[x / 4u + 6u][x % 4u][y]));
}

// Row `row` of either side and row + 16, at vec4f d of the panels.
fn put_panels(a: array<vec4f, 2>, b: array<vec4f, 2>, row: u32, d: u32) {
  panel_a[d][row] = a[0];
  panel_a[d][row + 16u] = a[1];
  panel_b[d][row] = b[0];
  panel_b[d][row + 16u] = b[1];
}

// Rows `row`, row + 8, row + 16 and row + 24 of the other side, column x of this chunk.
fn put_values(values: mat4x4f, row: u32, x: u32) {
  panel_c[row / 4u][row % 4u][x] = values[0];
  panel_c[row / 4u + 2u][row % 4u][x] = values[1];
  panel_c[row / 4u + 4u][row % 4u][x] = values[2];
  panel_c[row / 4u + 6u][row % 4u][x] = values[3];
}

fn add_row(acc: mat4x4f, w: vec4f, value: vec4f) -> mat4x4f {
  return mat4x4f(acc[0] + w.x * value, acc[1] + w.y * value, acc[2] + w.z * value, acc[3] + w.w * value);
}

// acc[i] + the sum over the rows of the other side of tile * panel_c; weights of rows that are not there are 0.
fn gather(acc: mat4x4f, y: u32, x: u32) -> mat4x4f {
  var o = acc;
  for (var j = 0u; j < ROWS / 4u; j++) {
    let g = eighth(j);
    o = add_row(o, tile[g][0][y], panel_c[g][0][x]);
    o = add_row(o, tile[g][1][y], panel_c[g][1][x]);
    o = add_row(o, tile[g][2][y], panel_c[g][2][x]);
    o = add_row(o, tile[g][3][y], panel_c[g][3][x]);
  }
  return o;
}

// The four rows of a lane's side.
fn rows_of(first: u32) -> vec4u { return vec4u(first) + vec4u(0u, 8u, 16u, 24u); }
