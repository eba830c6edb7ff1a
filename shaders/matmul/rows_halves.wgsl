// needs: ROW_QUARTERS, STEPS, DEPTH
// gives: rows_at, keep_rows
// The panel of A, of the halves that they are where A is stored so: see panel_halves.wgsl.

// What a lane reads is one vec4u.
var<workgroup> panel_a: array<array<array<array<vec2u, 2>, ROW_QUARTERS / 2 + 1>, STEPS>, DEPTH / STEPS>;  // (k / STEPS, k % STEPS, row / 4 within half a tile, the half)

// As in rows_floats.wgsl.
fn rows_at(g: u32, i: u32, quarter: u32, further: u32) -> vec4f {
  let words = panel_a[g][i][quarter][further];
  return vec4f(unpack2x16float(words.x), unpack2x16float(words.y));
}
fn keep_rows(g: u32, i: u32, quarter: u32, values: vec4f) {
  panel_a[g][i][quarter % (ROW_QUARTERS / 2u)][quarter / (ROW_QUARTERS / 2u)] = vec2u(pack2x16float(values.xy), pack2x16float(values.zw));
}
