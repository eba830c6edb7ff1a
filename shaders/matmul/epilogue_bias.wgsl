// needs: c, c_index, p
// gives: store
@group(0) @binding(4) var<storage, read> bias: array<f32>;  // (N) from bias0

fn store(row: u32, column: u32, sum: f32) { c[c_index(row, column)] = sum + bias[p.bias0 + column]; }
