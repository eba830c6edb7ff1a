// needs: c, c_index, p
// needs: tanh_of
// gives: store
// The product squashed into -scale to scale: c = scale * tanh(s / scale).

fn store(row: u32, column: u32, sum: f32) {
  c[c_index(row, column)] = p.scale * tanh_of(sum / p.scale);
}
