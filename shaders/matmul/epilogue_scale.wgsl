// needs: c, c_index, p
// gives: store
fn store(row: u32, column: u32, sum: f32) { c[c_index(row, column)] = p.scale * sum; }
