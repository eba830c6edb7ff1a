// needs: p, c_index, c
// needs: activation
// gives: store, elem
// Keeps the pre-activation too: the backward pass takes the activation's derivative there.
alias elem = f32;

@group(0) @binding(4) var<storage, read> bias: array<f32>;               // (N) from bias0
@group(0) @binding(5) var<storage, read_write> preactivation: array<f32>; // as C

fn store(row: u32, column: u32, sum: f32) {
  let u = sum + bias[p.bias0 + column];
  preactivation[c_index(row, column)] = u;
  c[c_index(row, column)] = activation(u);
}
