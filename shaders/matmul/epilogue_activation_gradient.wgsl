// needs: c, place_in_c, elem
// needs: activation_derivative
// gives: store
// The chain rule through an activation: the product is the gradient of its output.
@group(0) @binding(4) var<storage, read> preactivation: array<elem>;  // as C

fn store(row: u32, column: u32, sum: elem) {
  c[place_in_c(row, column)] = sum * activation_derivative(preactivation[place_in_c(row, column)]);
}
