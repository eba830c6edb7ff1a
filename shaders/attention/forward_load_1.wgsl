// needs: HEAD
// gives: p, position, lse, load_q, load_k, load_v, store_y, dims_of_head
// The forward problem of attention, one float a load: any head size, strides and offsets, in elements. `at` is
// where a row's head begins, d counts vec4f from there; the last one of a head is filled up with zeros.
// Row r of q is (batch r / seq, position position[0] + r % seq); key j of a batch is row batch * kv_rows + j.

struct Params {
  seq: u32, heads: u32, group: u32, pairs: u32, dims: u32, kv_rows: u32,
  q_stride: u32, q_offset: u32, k_stride: u32, k_offset: u32, v_stride: u32, v_offset: u32, scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> position: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;   // (rows, heads * HEAD)
@group(0) @binding(6) var<storage, read_write> lse: array<vec2f>;  // (rows, heads): the top score, and the log of the sum of exp(score - top)

// Where the dims are; past the end of the head, the last of them.
fn within(at: u32, d: u32) -> vec4u { return at + min(4u * d + vec4u(0u, 1u, 2u, 3u), vec4u(HEAD - 1u)); }
fn inside(d: u32, value: vec4f) -> vec4f { return select(vec4f(), value, vec4u(4u * d) + vec4u(0u, 1u, 2u, 3u) < vec4u(HEAD)); }
fn load_q(at: u32, d: u32) -> vec4f {
  let i = within(at, d);
  return inside(d, vec4f(q[i.x], q[i.y], q[i.z], q[i.w]));
}
fn load_k(at: u32, d: u32) -> vec4f {
  let i = within(at, d);
  return inside(d, vec4f(k[i.x], k[i.y], k[i.z], k[i.w]));
}
fn load_v(at: u32, d: u32) -> vec4f {
  let i = within(at, d);
  return inside(d, vec4f(v[i.x], v[i.y], v[i.z], v[i.w]));
}
fn store_y(at: u32, d: u32, value: vec4f) {
  let count = min(4u, HEAD - 4u * d);
  for (var j = 0u; j < count; j++) { y[at + 4u * d + j] = value[j]; }
}

fn dims_of_head() -> u32 {
  return min(p.dims, min(min(arrayLength(&q), arrayLength(&y)), min(arrayLength(&k), arrayLength(&v))));
}
