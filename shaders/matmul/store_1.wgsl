// needs: p
// needs: store
// gives: elem, c, place_in_c, place_in_bias, mark_at, start_of, finish
// C one float at a time, as `elem` of the epilogues: any width, stride and offset.

alias elem = f32;

@group(0) @binding(3) var<storage, read_write> c: array<elem>;

// Where an element lies in C, and in the operands of an epilogue that lie as C does; and where a column does in a bias.
fn place_in_c(row: u32, column: u32) -> u32 { return p.c0 + row * p.c_m + column; }
fn place_in_bias(column: u32) -> u32 { return p.bias0 + column; }

// 1 in the column `marked`, else 0.
fn mark_at(column: u32, marked: u32) -> elem { return select(0.0, 1.0, column == marked); }

// Four columns of a row of C as they are before the product; past the end the last one.
fn start_of(row: u32, column: u32) -> vec4f {
  if (p.accumulate == 0u) { return vec4f(); }
  let r = min(row, p.M - 1u);
  let last = p.N - 1u;
  return vec4f(c[place_in_c(r, min(column, last))], c[place_in_c(r, min(column + 1u, last))],
               c[place_in_c(r, min(column + 2u, last))], c[place_in_c(r, min(column + 3u, last))]);
}

// And as they are to be; what lies outside of C is not stored.
fn finish(row: u32, column: u32, values: vec4f) {
  let width = min(max(column, p.N) - column, min(4u, arrayLength(&c)));
  for (var j = 0u; j < select(0u, width, row < p.M); j++) { store(row, column + j, values[j]); }
}
