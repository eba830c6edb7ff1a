// Where every matmul starts and ends: the accumulators begin at the stored value when the product continues
// one (so a sum over k may be split over dispatches without changing a bit), and an epilogue's `store`,
// appended behind this text, finishes each element.

@group(0) @binding(3) var<storage, read_write> c: array<f32>;

fn c_index(row: u32, column: u32) -> u32 { return p.c0 + row * p.c_m + column; }

fn initial(row: u32, column: u32) -> f32 {
  if (p.accumulate == 0u) { return 0.0; }
  return c[c_index(row, column)];
}
