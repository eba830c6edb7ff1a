// needs: c, c_index
// gives: store
@group(0) @binding(4) var<storage, read> residual: array<f32>;  // as C

fn store(row: u32, column: u32, sum: f32) { c[c_index(row, column)] = residual[c_index(row, column)] + sum; }
