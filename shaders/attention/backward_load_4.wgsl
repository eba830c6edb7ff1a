// gives: p, lse, load_qkv, load_dy, store_dqkv, dims_of_head
// The backward problem of attention in vec4f: strides, offsets and HEAD count vec4f. See backward_load_1.wgsl.

struct Params {
  seq: u32, heads: u32, group: u32, pairs: u32, dims: u32,
  stride: u32, q_offset: u32, k_offset: u32, v_offset: u32, scale: f32,
  all_heads: u32, first_head: u32, d_stride: u32, dk_offset: u32, dv_offset: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> qkv: array<vec4f>;         // (rows, stride)
@group(0) @binding(2) var<storage, read> dy: array<vec4f>;          // (rows, all_heads * HEAD)
@group(0) @binding(3) var<storage, read> lse: array<vec2f>;         // (rows, all_heads)
@group(0) @binding(4) var<storage, read_write> dqkv: array<vec4f>;  // (rows, d_stride)

fn load_qkv(at: u32, d: u32) -> vec4f { return qkv[at + d]; }
fn load_dy(at: u32, d: u32) -> vec4f { return dy[at + d]; }
fn store_dqkv(at: u32, d: u32, value: vec4f) { dqkv[at + d] = value; }

// See forward_load_4.wgsl.
fn dims_of_head() -> u32 {
  return min(p.dims, min(arrayLength(&qkv), min(arrayLength(&dy), arrayLength(&dqkv))));
}
