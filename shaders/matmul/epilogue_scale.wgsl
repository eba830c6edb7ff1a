// needs: c, c_at, elem, p
// gives: store
fn store(row: u32, column: u32, sum: elem) { c[c_at(row, column)] = p.scale * sum; }
