@group(0) @binding(4) var<storage, read> bias: array<f32>;  // (N)

fn store(row: u32, column: u32, sum: f32) { c[c_index(row, column)] = sum + bias[column]; }
