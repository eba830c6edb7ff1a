// needs: c, place_in_c, elem
// gives: store
fn store(row: u32, column: u32, sum: elem) { c[place_in_c(row, column)] = sum; }
