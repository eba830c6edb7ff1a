// needs: c, c_at, elem
// gives: store
fn store(row: u32, column: u32, sum: elem) { c[c_at(row, column)] = sum; }
