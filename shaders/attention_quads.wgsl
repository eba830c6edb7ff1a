enable subgroups;
// Causal attention, 16 queries of one head per quad of lanes, 16 keys at a time: online softmax in registers.
// Each lane holds 4 queries. Strides and offsets are in vec4f; a workgroup's quads take neighbouring heads
// and the same queries, so that their lanes loop alike. Keys past the last one seen are never loaded.

struct Params {
  seq: u32, heads: u32, group: u32, pairs: u32, dims: u32, kv_rows: u32,
  q_stride: u32, q_offset: u32, k_stride: u32, k_offset: u32, v_stride: u32, v_offset: u32, scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> q: array<vec4f>;
@group(0) @binding(2) var<storage, read> k: array<vec4f>;
@group(0) @binding(3) var<storage, read> v: array<vec4f>;
@group(0) @binding(4) var<storage, read> position: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4f>;  // (rows, heads * DIMS)
@group(0) @binding(6) var<storage, read_write> lse: array<f32>;  // (rows, heads)

fn masked(s: vec4f, key: u32, last: u32) -> vec4f { return select(vec4f(-1e30), s * p.scale, four(key) <= vec4u(last)); }
fn mask_tile(s: mat4x4f, key: u32, last: vec4u) -> mat4x4f {
  return mat4x4f(masked(s[0], key, last.x), masked(s[1], key, last.y), masked(s[2], key, last.z), masked(s[3], key, last.w));
}
fn top_of(s: vec4f) -> f32 { return max(max(s.x, s.y), max(s.z, s.w)); }
fn tops_of(s: mat4x4f) -> vec4f { return vec4f(top_of(s[0]), top_of(s[1]), top_of(s[2]), top_of(s[3])); }
fn weigh(s: mat4x4f, top: vec4f) -> mat4x4f {
  return mat4x4f(exp(s[0] - top.x), exp(s[1] - top.y), exp(s[2] - top.z), exp(s[3] - top.w));
}
fn sums_from(acc: vec4f, w: mat4x4f) -> vec4f {
  let t = transpose(w);
  return acc + t[0] + t[1] + t[2] + t[3];
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
  let batch = pair / p.heads;
  let head = pair % p.heads;

  let first = 16u * tile + 4u * lane;
  let rows = vec4u(batch * p.seq) + min(four(first), vec4u(p.seq - 1u));
  let lasts = min(vec4u(position[0]) + four(first), vec4u(p.kv_rows - 1u));
  let last = min(position[0] + min(16u * tile + 15u, p.seq - 1u), p.kv_rows - 1u);
  let q_at = rows * p.q_stride + p.q_offset + head * DIMS;
  let k_at = batch * p.kv_rows * p.k_stride + p.k_offset + (head / p.group) * DIMS;
  let v_at = batch * p.kv_rows * p.v_stride + p.v_offset + (head / p.group) * DIMS;

  // Asking for the lengths here spares SwiftShader four divisions in each index clamp inside the loops.
  let dims = min(p.dims, min(arrayLength(&q), min(arrayLength(&k), arrayLength(&v))));
  var sum: array<mat4x4f, DIMS>;
  var top = vec4f(-1e30);
  var weight_sum = vec4f();
  for (var key = 0u; key <= last; key += 16u) {
    let own = min(four(key + 4u * lane), vec4u(last));
    let k_rows = k_at + own * p.k_stride;
    var s0: mat4x4f; var s1: mat4x4f; var s2: mat4x4f; var s3: mat4x4f;
    for (var d = 0u; d < dims; d++) {
      let a = mat4x4f(q[q_at.x + d], q[q_at.y + d], q[q_at.z + d], q[q_at.w + d]);
      let b = mat4x4f(k[k_rows.x + d], k[k_rows.y + d], k[k_rows.z + d], k[k_rows.w + d]);
      s0 = tile_from(s0, a, b);
      s1 = tile_from(s1, a, swap_x(b));
      s2 = tile_from(s2, a, swap_y(b));
      s3 = tile_from(s3, a, swap_diagonal(b));
    }
    s0 = mask_tile(s0, key + 4u * lane, lasts);
    s1 = mask_tile(s1, key + 4u * (lane ^ 1u), lasts);
    s2 = mask_tile(s2, key + 4u * (lane ^ 2u), lasts);
    s3 = mask_tile(s3, key + 4u * (lane ^ 3u), lasts);
    let higher = max(top, max(max(tops_of(s0), tops_of(s1)), max(tops_of(s2), tops_of(s3))));
    let shrink = exp(top - higher);
    top = higher;
    s0 = weigh(s0, top);
    s1 = weigh(s1, top);
    s2 = weigh(s2, top);
    s3 = weigh(s3, top);
    weight_sum = sums_from(sums_from(sums_from(sums_from(weight_sum * shrink, s0), s1), s2), s3);
    let v_rows = v_at + own * p.v_stride;
    for (var d = 0u; d < dims; d++) {
      let b = mat4x4f(v[v_rows.x + d], v[v_rows.y + d], v[v_rows.z + d], v[v_rows.w + d]);
      let old = sum[d];
      var o = mat4x4f(old[0] * shrink.x, old[1] * shrink.y, old[2] * shrink.z, old[3] * shrink.w);
      o = tile_from(o, s0, transpose(b));
      o = tile_from(o, s1, transpose(swap_x(b)));
      o = tile_from(o, s2, transpose(swap_y(b)));
      sum[d] = tile_from(o, s3, transpose(swap_diagonal(b)));
    }
  }
  let log_sum = top + log(weight_sum);
  let live = min(max(first, p.seq) - first, select(0u, 4u, wanted < p.pairs));
  for (var i = 0u; i < live; i++) {
    let out = rows[i] * p.heads + head;
    for (var d = 0u; d < dims; d++) { y[out * DIMS + d] = sum[d][i] / weight_sum[i]; }
    lse[out] = log_sum[i];
  }
}
