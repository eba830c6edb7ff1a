// needs: A_ALONG_M, B_ALONG_K
// needs: p
// gives: a, b, place_a, place_b, along_a, along_b, block_a, block_b, last_a, last_b, load_row, load_a, load_b, steps
// Loads of A and B, four floats at a time: one address and one bounds check for four elements. For K, a0, b0,
// the strides other than 1 and the sizes of A and B all multiples of 4. Constants: A_ALONG_M is 1 where a_m
// is 1 (A stored transposed) and else a_k is; B_ALONG_K is 1 where b_k is 1 (B stored transposed) and else
// b_n is. The transposes are free: only names move.

@group(0) @binding(1) var<storage, read> a: array<vec4f>;
@group(0) @binding(2) var<storage, read> b: array<vec4f>;

// Where four rows of A from `row` (a multiple of 4) on begin, and four columns of B; or, where these lie side
// by side, where they are at the first four steps of k.
fn place_a(row: u32) -> vec4u {
  if (A_ALONG_M != 0u) { return ((p.a0 + min(row, (p.M - 1u) & ~3u)) >> 2u) + vec4u(0u, 1u, 2u, 3u) * (p.a_k >> 2u); }
  return (p.a0 + min(row + vec4u(0u, 1u, 2u, 3u), vec4u(p.M - 1u)) * p.a_m) >> vec4u(2u);
}
fn place_b(column: u32) -> vec4u {
  if (B_ALONG_K != 0u) { return (p.b0 + min(column + vec4u(0u, 1u, 2u, 3u), vec4u(p.N - 1u)) * p.b_n) >> vec4u(2u); }
  return ((p.b0 + min(column, (p.N - 1u) & ~3u)) >> 2u) + vec4u(0u, 1u, 2u, 3u) * (p.b_k >> 2u);
}

// One row of A over k, k + 1, k + 2, k + 3; not for A_ALONG_M.
fn load_row(place: u32, k: u32) -> vec4f { return a[place + (k >> 2u)]; }

// How far from there the steps of k from `k` on are.
fn along_a(k: u32) -> u32 { return (k * p.a_k) >> 2u; }
fn along_b(k: u32) -> u32 { return (k * p.b_k) >> 2u; }

// Four rows of A over four steps of k, a row to a column of the result; then four columns of B.
fn block_a(i: vec4u) -> mat4x4f {
  let block = mat4x4f(a[i.x], a[i.y], a[i.z], a[i.w]);
  if (A_ALONG_M != 0u) { return transpose(block); }
  return block;
}
fn block_b(i: vec4u) -> mat4x4f {
  let block = mat4x4f(b[i.x], b[i.y], b[i.z], b[i.w]);
  if (B_ALONG_K != 0u) { return block; }
  return transpose(block);
}
fn load_a(place: vec4u, k: u32) -> mat4x4f { return block_a(place + along_a(k)); }
fn load_b(place: vec4u, k: u32) -> mat4x4f { return block_b(place + along_b(k)); }

// The same of any k, a multiple of 4, which would be at `i`, the last four steps in place of those past K.
fn last_a(i: vec4u, k: u32) -> mat4x4f { return block_a(i - along_a(k - min(k, p.K - 4u))); }
fn last_b(i: vec4u, k: u32) -> mat4x4f { return block_b(i - along_b(k - min(k, p.K - 4u))); }

// K, for reasons given in load_1.wgsl.
fn steps() -> u32 { return min(p.K, 4u * min(arrayLength(&a), arrayLength(&b))); }
