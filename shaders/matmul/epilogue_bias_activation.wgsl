// needs: c, c_at, bias_at, elem
// needs: activation
// gives: store
// Keeps the pre-activation too: the backward pass takes the activation's derivative there.
@group(0) @binding(4) var<storage, read> bias: array<elem>;               // (N) from bias0
@group(0) @binding(5) var<storage, read_write> preactivation: array<elem>; // as C

fn store(row: u32, column: u32, sum: elem) {
  let u = sum + bias[bias_at(column)];
  preactivation[c_at(row, column)] = u;
  c[c_at(row, column)] = activation(u);
}
