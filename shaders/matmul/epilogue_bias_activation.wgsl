// needs: c, place_in_c, place_in_bias, elem
// needs: activation
// gives: store
// Keeps the pre-activation too: the backward pass takes the activation's derivative there.
@group(0) @binding(4) var<storage, read> bias: array<elem>;               // (N) from bias0
@group(0) @binding(5) var<storage, read_write> preactivation: array<elem>; // as C

fn store(row: u32, column: u32, sum: elem) {
  let u = sum + bias[place_in_bias(column)];
  preactivation[place_in_c(row, column)] = u;
  c[place_in_c(row, column)] = activation(u);
}
