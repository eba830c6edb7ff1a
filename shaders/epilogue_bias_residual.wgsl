@group(0) @binding(4) var<storage, read> bias: array<f32>;      // (N)
@group(0) @binding(5) var<storage, read> residual: array<f32>;  // (M, N)

fn store(row: u32, column: u32, sum: f32) {
  c[c_index(row, column)] = residual[row * p.N + column] + (sum + bias[column]);
}
