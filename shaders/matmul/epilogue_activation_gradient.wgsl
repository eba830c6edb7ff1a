// needs: c, c_at, elem
// needs: activation_derivative
// gives: store
// The chain rule through an activation: the product is the gradient of its output.
@group(0) @binding(4) var<storage, read> preactivation: array<elem>;  // as C

fn store(row: u32, column: u32, sum: elem) {
  c[c_at(row, column)] = sum * activation_derivative(preactivation[c_at(row, column)]);
}
