// needs: c, place_in_c, elem
// gives: store
@group(0) @binding(4) var<storage, read> residual: array<elem>;  // as C

fn store(row: u32, column: u32, sum: elem) { c[place_in_c(row, column)] = residual[place_in_c(row, column)] + sum; }
