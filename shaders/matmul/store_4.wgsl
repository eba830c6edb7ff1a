// needs: p
// needs: store
// gives: elem, c, place_in_c, place_in_bias, mark_at, start_of, finish
// C four floats at a time, as `elem` of the epilogues: one address and one bounds check for four elements. For N, c0, bias0 and
// the stride of C all multiples of 4.

alias elem = vec4f;

@group(0) @binding(3) var<storage, read_write> c: array<elem>;

// As in store_1.wgsl, of columns that are multiples of 4.
fn place_in_c(row: u32, column: u32) -> u32 { return (p.c0 + row * p.c_m + column) >> 2u; }
fn place_in_bias(column: u32) -> u32 { return (p.bias0 + column) >> 2u; }

fn mark_at(column: u32, marked: u32) -> elem {
  return select(elem(), elem(1.0), vec4u(column) + vec4u(0u, 1u, 2u, 3u) == vec4u(marked));
}

fn start_of(row: u32, column: u32) -> vec4f {
  if (p.accumulate == 0u) { return vec4f(); }
  return c[place_in_c(min(row, p.M - 1u), min(column, p.N - 4u))];
}

fn finish(row: u32, column: u32, values: vec4f) {
  if (row < p.M && column < p.N) { store(row, column, values); }
}
