// needs: c, c_at, elem, p
// needs: tanh_of
// gives: store
// The product squashed into -scale to scale: c = scale * tanh(s / scale).

fn store(row: u32, column: u32, sum: elem) {
  c[c_at(row, column)] = p.scale * tanh_of(sum / p.scale);
}
