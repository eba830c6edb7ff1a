enable subgroups;
// dq of causal attention, 16 queries of one head per quad of lanes, 16 keys at a time; each lane holds 4 queries.
// w = exp(q.k * scale - lse), ds = w * (dy.v - delta), dq = scale * sum ds * k. Strides and offsets in vec4f.

struct Params {
  seq: u32, heads: u32, group: u32, pairs: u32, dims: u32,
  stride: u32, q_offset: u32, k_offset: u32, v_offset: u32, scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> qkv: array<vec4f>;         // (rows, stride)
@group(0) @binding(2) var<storage, read> dy: array<vec4f>;          // (rows, heads * DIMS)
@group(0) @binding(3) var<storage, read> lse: array<f32>;           // (rows, heads)
@group(0) @binding(4) var<storage, read> delta: array<f32>;         // (rows, heads)
@group(0) @binding(5) var<storage, read_write> dqkv: array<vec4f>;  // (rows, stride), the q columns

fn score_gradient(s: vec4f, dw: vec4f, lse: f32, delta: f32, key: u32, query: u32) -> vec4f {
  return select(vec4f(), exp(s * p.scale - lse) * (dw - delta), four(key) <= vec4u(query));
}
fn score_gradients(s: mat4x4f, dw: mat4x4f, lse: vec4f, delta: vec4f, key: u32, query: u32) -> mat4x4f {
  return mat4x4f(
    score_gradient(s[0], dw[0], lse.x, delta.x, key, query), score_gradient(s[1], dw[1], lse.y, delta.y, key, query + 1u),
    score_gradient(s[2], dw[2], lse.z, delta.z, key, query + 2u), score_gradient(s[3], dw[3], lse.w, delta.w, key, query + 3u));
}

@compute @workgroup_size(4 * QUADS)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let lane = index & 3u;
  let tiles = (p.seq + 15u) >> 4u;
  let per_tile = (p.pairs + QUADS - 1u) / QUADS;
  let at = wg.y * groups.x + wg.x;
  if (at >= tiles * per_tile) { return; }
  let tile = tiles - 1u - at / per_tile;  // the longest first
  let wanted = (at % per_tile) * QUADS + (index >> 2u);
  let pair = min(wanted, p.pairs - 1u);
  let start = (pair / p.heads) * p.seq;
  let head = pair % p.heads;

  let first = 16u * tile + 4u * lane;
  let last = min(16u * tile + 15u, p.seq - 1u);
  let rows = vec4u(start) + min(four(first), vec4u(last));
  let out = rows * p.heads + head;
  let lses = vec4f(lse[out.x], lse[out.y], lse[out.z], lse[out.w]);
  let deltas = vec4f(delta[out.x], delta[out.y], delta[out.z], delta[out.w]);
  let q_at = rows * p.stride + p.q_offset + head * DIMS;
  let dy_at = out * DIMS;
  let kv_at = start * p.stride + (head / p.group) * DIMS;

  // Asking for the lengths here spares SwiftShader four divisions in each index clamp inside the loops.
  let dims = min(p.dims, min(arrayLength(&qkv), arrayLength(&dy)));
  var sum: array<mat4x4f, DIMS>;
  for (var key = 0u; key <= last; key += 16u) {
    let kv_rows = kv_at + min(four(key + 4u * lane), vec4u(last)) * p.stride;
    let k_at = kv_rows + p.k_offset;
    let v_at = kv_rows + p.v_offset;
    var s0: mat4x4f; var s1: mat4x4f; var s2: mat4x4f; var s3: mat4x4f;
    for (var d = 0u; d < dims; d++) {
      let a = mat4x4f(qkv[q_at.x + d], qkv[q_at.y + d], qkv[q_at.z + d], qkv[q_at.w + d]);
      let b = mat4x4f(qkv[k_at.x + d], qkv[k_at.y + d], qkv[k_at.z + d], qkv[k_at.w + d]);
      s0 = tile_from(s0, a, b);
      s1 = tile_from(s1, a, swap_x(b));
      s2 = tile_from(s2, a, swap_y(b));
      s3 = tile_from(s3, a, swap_diagonal(b));
    }
    var w0: mat4x4f; var w1: mat4x4f; var w2: mat4x4f; var w3: mat4x4f;
    for (var d = 0u; d < dims; d++) {
      let a = mat4x4f(dy[dy_at.x + d], dy[dy_at.y + d], dy[dy_at.z + d], dy[dy_at.w + d]);
      let b = mat4x4f(qkv[v_at.x + d], qkv[v_at.y + d], qkv[v_at.z + d], qkv[v_at.w + d]);
      w0 = tile_from(w0, a, b);
      w1 = tile_from(w1, a, swap_x(b));
      w2 = tile_from(w2, a, swap_y(b));
      w3 = tile_from(w3, a, swap_diagonal(b));
    }
    s0 = score_gradients(s0, w0, lses, deltas, key + 4u * lane, first);
    s1 = score_gradients(s1, w1, lses, deltas, key + 4u * (lane ^ 1u), first);
    s2 = score_gradients(s2, w2, lses, deltas, key + 4u * (lane ^ 2u), first);
    s3 = score_gradients(s3, w3, lses, deltas, key + 4u * (lane ^ 3u), first);
    for (var d = 0u; d < dims; d++) {
      let b = mat4x4f(qkv[k_at.x + d], qkv[k_at.y + d], qkv[k_at.z + d], qkv[k_at.w + d]);
      let o = tile_from(tile_from(sum[d], s0, transpose(b)), s1, transpose(swap_x(b)));
      sum[d] = tile_from(tile_from(o, s2, transpose(swap_y(b))), s3, transpose(swap_diagonal(b)));
    }
  }
  let live = min(max(first, p.seq) - first, select(0u, 4u, wanted < p.pairs));
  for (var i = 0u; i < live; i++) {
    for (var d = 0u; d < dims; d++) { dqkv[q_at[i] + d] = sum[d][i] * p.scale; }
  }
}
