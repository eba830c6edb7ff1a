// needs: keep_rows, keep_columns
// needs: load_a, load_b
// needs: p
// gives: fetch_a, fetch_b, keep_a, keep_b
// What the tiled products share: blocks of A and B on their way into panels. What lies outside of A and B is zero.

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
  keep_rows(depth, 0u, place, block[0]);
  keep_rows(depth, 1u, place, block[1]);
  keep_rows(depth, 2u, place, block[2]);
  keep_rows(depth, 3u, place, block[3]);
}
fn keep_b(depth: u32, place: u32, block: mat4x4f) {
  keep_columns(depth, 0u, place, block[0]);
  keep_columns(depth, 1u, place, block[1]);
  keep_columns(depth, 2u, place, block[2]);
  keep_columns(depth, 3u, place, block[3]);
}
