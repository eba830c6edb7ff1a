// needs: p
// gives: a, b, place_a, place_b, along_a, along_b, block_a, block_b, last_a, last_b, load_row, load_a, load_b, steps
// Loads of A and B, one float at a time: any shape, layout, stride and offset. Steps of k past K become
// zeros on both sides, rows and columns past the end repeat the last one (they are never stored).

@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;

// Where four rows of A from `row` on begin, and four columns of B.
fn place_a(row: u32) -> vec4u { return p.a0 + min(row + vec4u(0u, 1u, 2u, 3u), vec4u(p.M - 1u)) * p.a_m; }
fn place_b(column: u32) -> vec4u { return p.b0 + min(column + vec4u(0u, 1u, 2u, 3u), vec4u(p.N - 1u)) * p.b_n; }

// How far from there step k is.
fn along_a(k: u32) -> u32 { return k * p.a_k; }
fn along_b(k: u32) -> u32 { return k * p.b_k; }

// Four rows of A over four steps of k, none of which is past K, a row to a column of the result; then four columns of B.
fn block_a(i: vec4u) -> mat4x4f {
  let s = p.a_k;
  return transpose(mat4x4f(four_of_a(i), four_of_a(i + s), four_of_a(i + 2u * s), four_of_a(i + 3u * s)));
}
fn block_b(i: vec4u) -> mat4x4f {
  let s = p.b_k;
  return transpose(mat4x4f(four_of_b(i), four_of_b(i + s), four_of_b(i + 2u * s), four_of_b(i + 3u * s)));
}
fn four_of_a(i: vec4u) -> vec4f { return vec4f(a[i.x], a[i.y], a[i.z], a[i.w]); }
fn four_of_b(i: vec4u) -> vec4f { return vec4f(b[i.x], b[i.y], b[i.z], b[i.w]); }

// The same of any k, which would be at `i`, the last step in place of those past K.
fn last_a(i: vec4u, k: u32) -> mat4x4f {
  let s = (to_last(k) - k) * p.a_k;
  return transpose(mat4x4f(four_of_a(i + s.x), four_of_a(i + s.y), four_of_a(i + s.z), four_of_a(i + s.w)));
}
fn last_b(i: vec4u, k: u32) -> mat4x4f {
  let s = (to_last(k) - k) * p.b_k;
  return transpose(mat4x4f(four_of_b(i + s.x), four_of_b(i + s.y), four_of_b(i + s.z), four_of_b(i + s.w)));
}
fn to_last(k: u32) -> vec4u { return min(k + vec4u(0u, 1u, 2u, 3u), vec4u(p.K - 1u)); }

// One row of A over k, k + 1, k + 2, k + 3, of which the first is no step past K.
fn load_row(place: u32, k: u32) -> vec4f {
  let i = place + to_last(k) * p.a_k;
  return select(vec4f(), vec4f(a[i.x], a[i.y], a[i.z], a[i.w]), vec4u(p.K - k) > vec4u(0u, 1u, 2u, 3u));
}

fn load_column(place: u32, k: u32) -> vec4f {
  let i = place + to_last(k) * p.b_k;
  return select(vec4f(), vec4f(b[i.x], b[i.y], b[i.z], b[i.w]), vec4u(p.K - k) > vec4u(0u, 1u, 2u, 3u));
}

// Four of them.
fn load_a(place: vec4u, k: u32) -> mat4x4f {
  return mat4x4f(load_row(place.x, k), load_row(place.y, k), load_row(place.z, k), load_row(place.w, k));
}
fn load_b(place: vec4u, k: u32) -> mat4x4f {
  return mat4x4f(load_column(place.x, k), load_column(place.y, k), load_column(place.z, k), load_column(place.w, k));
}

// Never shorter than K. Asking for the lengths once, before the loop over k, spares SwiftShader from working
// them out (four scalar divisions) at every index clamp that the WGSL compiler adds inside it.
fn steps() -> u32 { return min(p.K, min(arrayLength(&a), arrayLength(&b))); }
