// needs: c, c_at, elem
// gives: store
@group(0) @binding(4) var<storage, read> residual: array<elem>;  // as C

fn store(row: u32, column: u32, sum: elem) { c[c_at(row, column)] = residual[c_at(row, column)] + sum; }
