// needs: panel_a, panel_b
// needs: load_a, load_b
// needs: p, initial
// needs: store
// gives: fetch_a, fetch_b, keep_a, keep_b, start_of, finish
// What the tiled products share: blocks of A and B on their way into panels, and the sums' way from C and into it. What lies
// outside of A and B is zero, and nothing is stored outside of C.

// Four rows of A over four steps of k, a step to a column; four columns of B.
fn fetch_a(at: vec4u, k: u32) -> mat4x4f {
  if (k >= p.K) { return mat4x4f(); }
  return transpose(load_a(at, k));
}
fn fetch_b(at: vec4u, k: u32) -> mat4x4f {
  if (k >= p.K) { return mat4x4f(); }
  return transpose(load_b(at, k));
}

// A block into the panel, four steps of k from 4 `depth` on.
fn keep_a(depth: u32, place: u32, block: mat4x4f) {
  panel_a[depth][0][place] = block[0];
  panel_a[depth][1][place] = block[1];
  panel_a[depth][2][place] = block[2];
  panel_a[depth][3][place] = block[3];
}
fn keep_b(depth: u32, place: u32, block: mat4x4f) {
  panel_b[depth][0][place] = block[0];
  panel_b[depth][1][place] = block[1];
  panel_b[depth][2][place] = block[2];
  panel_b[depth][3][place] = block[3];
}

// Four columns of a row of C as they are before the product; and as they are to be.
fn start_of(row: u32, column: u32) -> vec4f {
  let r = min(row, p.M - 1u);
  let last = p.N - 1u;
  return vec4f(initial(r, min(column, last)), initial(r, min(column + 1u, last)),
               initial(r, min(column + 2u, last)), initial(r, min(column + 3u, last)));
}

fn finish(row: u32, column: u32, values: vec4f) {
  let width = select(0u, min(max(column, p.N) - column, 4u), row < p.M);
  for (var j = 0u; j < width; j++) { store(row, column + j, values[j]); }
}
