// needs: DIMS
// gives: ROWS, DEPTH, CHUNKS, panel_a, panel_b, panel_c, meet, put_tile, gather, rows_of
// What the tiled kernels of attention share, for GPUs: a workgroup of 8 x 8 lanes works on 32 x 32 pairs of a
// query and a key. Lane (x, y) holds a 4 x 4 tile: rows y, y + 8, y + 16, y + 24 of the one side against rows
// x, x + 8, x + 16, x + 24 of the other, so that neighbouring lanes read neighbouring vec4f. Rows pass through
// workgroup memory 16 dims at a time, which makes its size (12.4 KB) independent of the head's.

const ROWS = 32u;
const DEPTH = 4u;                      // vec4f of a panel's row
const CHUNKS = (DIMS + 7u) / 8u;       // a lane sums the vec4f x, x + 8, ... of its rows

// One vec4f more than the 32 of a row: lanes that write a column meet in fewer memory banks.
var<workgroup> panel_a: array<array<vec4f, ROWS + 1>, DEPTH>;  // (dim / 4, row)
var<workgroup> panel_b: array<array<vec4f, ROWS + 1>, DEPTH>;  // (dim / 4, row)
var<workgroup> panel_c: array<array<vec4f, 8>, ROWS>;          // (row of the other side, dim / 4)
var<workgroup> tile: array<array<vec4f, 8>, ROWS>;             // (row of the other side, y), of 4 own rows

// One chain of multiply-adds, as in delta_4.wgsl: dy.v of a lone key cancels its delta exactly.
fn dot_from(acc: f32, a: vec4f, b: vec4f) -> f32 { return acc + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

fn row_from(acc: vec4f, a: vec4f, b: mat4x4f) -> vec4f {
  return vec4f(dot_from(acc.x, a, b[0]), dot_from(acc.y, a, b[1]), dot_from(acc.z, a, b[2]), dot_from(acc.w, a, b[3]));
}

// acc[i][j] + the dot products over the first `depth` vec4f of a pair of panels
fn meet(acc: mat4x4f, y: u32, x: u32, depth: u32) -> mat4x4f {
  var s = acc;
  for (var d = 0u; d < depth; d++) {
    let b = mat4x4f(panel_b[d][x], panel_b[d][x + 8u], panel_b[d][x + 16u], panel_b[d][x + 24u]);
    s = mat4x4f(row_from(s[0], panel_a[d][y], b), row_from(s[1], panel_a[d][y + 8u], b),
                row_from(s[2], panel_a[d][y + 16u], b), row_from(s[3], panel_a[d][y + 24u], b));
  }
  return s;
}

fn put_tile(s: mat4x4f, y: u32, x: u32) {
  let t = transpose(s);
  tile[x][y] = t[0];
  tile[x + 8u][y] = t[1];
  tile[x + 16u][y] = t[2];
  tile[x + 24u][y] = t[3];
}

// acc[i] + the sum over the first `count` rows of the other side of tile * panel_c
fn gather(acc: mat4x4f, y: u32, x: u32, count: u32) -> mat4x4f {
  var o = acc;
  for (var j = 0u; j < count; j++) {
    let w = tile[j][y];
    let value = panel_c[j][x];
    o = mat4x4f(o[0] + w.x * value, o[1] + w.y * value, o[2] + w.z * value, o[3] + w.w * value);
  }
  return o;
}

// The four rows of a lane's side.
fn rows_of(first: u32) -> vec4u { return vec4u(first) + vec4u(0u, 8u, 16u, 24u); }
