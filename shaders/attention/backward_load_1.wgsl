// needs: HEAD
// gives: p, lse, inside, within, load_qkv, load_dy, store_dqkv, dims_of_head
// The backward problem of attention, one float a load: any head size, in elements. `at` is where a row's head
// begins, d counts vec4f from there; the last one of a head is filled up with zeros. The columns of a row of
// qkv are q (all_heads), k and v (all_heads / group each), of which this goes over `heads` from first_head on; dqkv has these alone.

struct Params {
  seq: u32, heads: u32, group: u32, pairs: u32, dims: u32,
  stride: u32, q_offset: u32, k_offset: u32, v_offset: u32, scale: f32,
  all_heads: u32, first_head: u32, d_stride: u32, dk_offset: u32, dv_offset: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;        // (rows, stride)
@group(0) @binding(2) var<storage, read> dy: array<f32>;         // (rows, all_heads * HEAD)
@group(0) @binding(3) var<storage, read> lse: array<vec2f>;      // (rows, all_heads)
@group(0) @binding(4) var<storage, read_write> dqkv: array<f32>; // (rows, d_stride)

// Where the dims are; past the end of the head, the last of them.
fn within(at: u32, d: u32) -> vec4u { return at + min(4u * d + vec4u(0u, 1u, 2u, 3u), vec4u(HEAD - 1u)); }
fn inside(d: u32, value: vec4f) -> vec4f { return select(vec4f(), value, vec4u(4u * d) + vec4u(0u, 1u, 2u, 3u) < vec4u(HEAD)); }
fn load_qkv(at: u32, d: u32) -> vec4f {
  let i = within(at, d);
  return inside(d, vec4f(qkv[i.x], qkv[i.y], qkv[i.z], qkv[i.w]));
}
fn load_dy(at: u32, d: u32) -> vec4f {
  let i = within(at, d);
  return inside(d, vec4f(dy[i.x], dy[i.y], dy[i.z], dy[i.w]));
}
fn store_dqkv(at: u32, d: u32, value: vec4f) {
  let count = min(4u, HEAD - 4u * d);
  for (var j = 0u; j < count; j++) { dqkv[at + 4u * d + j] = value[j]; }
}

fn dims_of_head() -> u32 {
  return min(p.dims, min(arrayLength(&qkv), min(arrayLength(&dy), arrayLength(&dqkv))));
}
