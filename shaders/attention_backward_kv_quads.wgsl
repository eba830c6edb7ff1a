enable subgroups;
// dk and dv of causal attention, 16 keys of one kv head per quad of lanes, 16 queries at a time, over the query
// heads of the group: always in the same order, so no atomics. Each lane holds 4 keys and loads 4 queries.
// Strides and offsets are in vec4f.

struct Params {
  seq: u32, heads: u32, group: u32, pairs: u32, dims: u32,
  stride: u32, q_offset: u32, k_offset: u32, v_offset: u32, scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> qkv: array<vec4f>;         // (rows, stride)
@group(0) @binding(2) var<storage, read> dy: array<vec4f>;          // (rows, heads * DIMS)
@group(0) @binding(3) var<storage, read> lse: array<f32>;           // (rows, heads)
@group(0) @binding(4) var<storage, read> delta: array<f32>;         // (rows, heads)
@group(0) @binding(5) var<storage, read_write> dqkv: array<vec4f>;  // (rows, stride), the k and v columns

// Of 4 keys (columns) and 4 queries.
fn weights(s: vec4f, lse: vec4f, key: u32, query: u32) -> vec4f {
  let queries = four(query);
  return select(vec4f(), exp(s * p.scale - lse), (vec4u(key) <= queries) & (queries < vec4u(p.seq)));
}
fn weigh(s: mat4x4f, lse: vec4f, key: u32, query: u32) -> mat4x4f {
  return mat4x4f(weights(s[0], lse, key, query), weights(s[1], lse, key + 1u, query),
                 weights(s[2], lse, key + 2u, query), weights(s[3], lse, key + 3u, query));
}
fn score_gradients(w: mat4x4f, dw: mat4x4f, delta: vec4f) -> mat4x4f {
  return mat4x4f(w[0] * (dw[0] - delta), w[1] * (dw[1] - delta), w[2] * (dw[2] - delta), w[3] * (dw[3] - delta));
}

@compute @workgroup_size(4 * QUADS)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let lane = index & 3u;
  let tiles = (p.seq + 15u) >> 4u;
  let per_tile = (p.pairs + QUADS - 1u) / QUADS;
  let at = wg.y * groups.x + wg.x;
  if (at >= tiles * per_tile) { return; }
  let tile = at / per_tile;  // the longest first
  let wanted = (at % per_tile) * QUADS + (index >> 2u);
  let pair = min(wanted, p.pairs - 1u);
  let kv_heads = p.heads / p.group;
  let start = (pair / kv_heads) * p.seq;
  let kv_head = pair % kv_heads;

  let first = 16u * tile + 4u * lane;
  let kv_at = (vec4u(start) + min(four(first), vec4u(p.seq - 1u))) * p.stride + kv_head * DIMS;
  let k_at = kv_at + p.k_offset;
  let v_at = kv_at + p.v_offset;

  // Asking for the lengths here spares SwiftShader four divisions in each index clamp inside the loops.
  let dims = min(p.dims, min(arrayLength(&qkv), arrayLength(&dy)));
  var dk: array<mat4x4f, DIMS>;
  var dv: array<mat4x4f, DIMS>;
  for (var member = 0u; member < p.group; member++) {
    let head = kv_head * p.group + member;
    for (var query = 16u * tile; query < p.seq; query += 16u) {
      let rows = vec4u(start) + min(four(query + 4u * lane), vec4u(p.seq - 1u));
      let out = rows * p.heads + head;
      let q_at = rows * p.stride + p.q_offset + head * DIMS;
      let dy_at = out * DIMS;
      var s0: mat4x4f; var s1: mat4x4f; var s2: mat4x4f; var s3: mat4x4f;
      for (var d = 0u; d < dims; d++) {
        let a = mat4x4f(qkv[k_at.x + d], qkv[k_at.y + d], qkv[k_at.z + d], qkv[k_at.w + d]);
        let b = mat4x4f(qkv[q_at.x + d], qkv[q_at.y + d], qkv[q_at.z + d], qkv[q_at.w + d]);
        s0 = tile_from(s0, a, b);
        s1 = tile_from(s1, a, swap_x(b));
        s2 = tile_from(s2, a, swap_y(b));
        s3 = tile_from(s3, a, swap_diagonal(b));
      }
      let lses = vec4f(lse[out.x], lse[out.y], lse[out.z], lse[out.w]);
      s0 = weigh(s0, lses, first, query + 4u * lane);
      s1 = weigh(s1, quadSwapX(lses), first, query + 4u * (lane ^ 1u));
      s2 = weigh(s2, quadSwapY(lses), first, query + 4u * (lane ^ 2u));
      s3 = weigh(s3, quadSwapDiagonal(lses), first, query + 4u * (lane ^ 3u));
      var w0: mat4x4f; var w1: mat4x4f; var w2: mat4x4f; var w3: mat4x4f;
      for (var d = 0u; d < dims; d++) {
        let a = mat4x4f(qkv[v_at.x + d], qkv[v_at.y + d], qkv[v_at.z + d], qkv[v_at.w + d]);
        let b = mat4x4f(dy[dy_at.x + d], dy[dy_at.y + d], dy[dy_at.z + d], dy[dy_at.w + d]);
        let b1 = swap_x(b);
        let b2 = swap_y(b);
        let b3 = swap_diagonal(b);
        w0 = tile_from(w0, a, b);
        w1 = tile_from(w1, a, b1);
        w2 = tile_from(w2, a, b2);
        w3 = tile_from(w3, a, b3);
        let o = tile_from(tile_from(dv[d], s0, transpose(b)), s1, transpose(b1));
        dv[d] = tile_from(tile_from(o, s2, transpose(b2)), s3, transpose(b3));
      }
      let deltas = vec4f(delta[out.x], delta[out.y], delta[out.z], delta[out.w]);
      s0 = score_gradients(s0, w0, deltas);
      s1 = score_gradients(s1, w1, quadSwapX(deltas));
      s2 = score_gradients(s2, w2, quadSwapY(deltas));
      s3 = score_gradients(s3, w3, quadSwapDiagonal(deltas));
      for (var d = 0u; d < dims; d++) {
        let b = mat4x4f(qkv[q_at.x + d], qkv[q_at.y + d], qkv[q_at.z + d], qkv[q_at.w + d]);
        let o = tile_from(tile_from(dk[d], s0, transpose(b)), s1, transpose(swap_x(b)));
        dk[d] = tile_from(tile_from(o, s2, transpose(swap_y(b))), s3, transpose(swap_diagonal(b)));
      }
    }
  }
  let live = min(max(first, p.seq) - first, select(0u, 4u, wanted < p.pairs));
  for (var i = 0u; i < live; i++) {
    for (var d = 0u; d < dims; d++) {
      dqkv[k_at[i] + d] = dk[d][i] * p.scale;
      dqkv[v_at[i] + d] = dv[d][i];
    }
  }
}
