// needs: c, place_in_c, elem, p
// needs: tanh_of
// gives: store
// The product squashed into -scale to scale: c = scale * tanh(s / scale).

fn store(row: u32, column: u32, sum: elem) {
  c[place_in_c(row, column)] = p.scale * tanh_of(sum / p.scale);
}
