// gives: p, position, lse, load_q, load_k, load_v, store_y, dims_of_head
// The forward problem of attention in vec4f: strides, offsets and HEAD count vec4f. See forward_load_1.wgsl.

struct Params {
  seq: u32, heads: u32, group: u32, pairs: u32, dims: u32, kv_rows: u32,
  q_stride: u32, q_offset: u32, k_stride: u32, k_offset: u32, v_stride: u32, v_offset: u32, scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> k: array<vec4f>;
@group(0) @binding(3) var<storage, read> v: array<vec4f>;
@group(0) @binding(4) var<storage, read> position: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4f>;  // (rows, heads * HEAD)
@group(0) @binding(6) var<storage, read_write> lse: array<vec2f>;  // (rows, heads): the top score, and the log of the sum of exp(score - top)

fn load_q(at: u32, d: u32) -> vec4f { return q[at + d]; }
fn load_k(at: u32, d: u32) -> vec4f { return k[at + d]; }
fn load_v(at: u32, d: u32) -> vec4f { return v[at + d]; }
fn store_y(at: u32, d: u32, value: vec4f) { y[at + d] = value; }

// vec4f in a head, never more than p.dims. Asking for the lengths before the loops spares SwiftShader, which
// computes arrayLength with four scalar divisions, doing so in every index clamp inside them.
fn dims_of_head() -> u32 {
  return min(p.dims, min(min(arrayLength(&q), arrayLength(&y)), min(arrayLength(&k), arrayLength(&v))));
}
