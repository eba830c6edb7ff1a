// needs: c, c_index
// needs: activation_derivative
// gives: store, elem
// The chain rule through an activation: the product is the gradient of its output.
alias elem = f32;

@group(0) @binding(4) var<storage, read> preactivation: array<f32>;  // as C

fn store(row: u32, column: u32, sum: f32) {
  c[c_index(row, column)] = sum * activation_derivative(preactivation[c_index(row, column)]);
}
