// needs: COLUMN_QUARTERS, STEPS, DEPTH
// gives: columns_at, keep_columns
// The panel of B, of the halves that they are where B is stored so: a quarter less to read from workgroup memory. Some GPUs multiply a
// half and a float in one instruction, others widen it first.

// What a lane reads is one vec4u.
var<workgroup> panel_b: array<array<array<array<vec2u, 2>, COLUMN_QUARTERS / 2 + 1>, STEPS>, DEPTH / STEPS>;  // (k / STEPS, k % STEPS, column / 4 within half a tile, the half)

// As in panel_floats.wgsl.
fn columns_at(g: u32, i: u32, quarter: u32, further: u32) -> vec4f {
  let words = panel_b[g][i][quarter][further];
  return vec4f(unpack2x16float(words.x), unpack2x16float(words.y));
}
fn keep_columns(g: u32, i: u32, quarter: u32, values: vec4f) {
  panel_b[g][i][quarter % (COLUMN_QUARTERS / 2u)][quarter / (COLUMN_QUARTERS / 2u)] = vec2u(pack2x16float(values.xy), pack2x16float(values.zw));
}
