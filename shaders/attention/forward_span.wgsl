// needs: LANES, HEAD, DIMS
// needs: p, position, dims_of_head, load_q, load_k, load_v, lse, store_y
// needs: four, ROWS, SPANS, tile_from, swaps_x, swaps_y, swaps_xy
// needs: SPAN
// needs: seen, first_keys, last_tokens, lowest_key, last_token
// Attention, ROWS queries of one head per span of lanes, ROWS keys at a time: online softmax in registers. Each lane
// holds 4 queries. Keys before the first and past the last one that the workgroup sees are never loaded. A query that
// sees no key of the first tiles weighs them by exp(0), until its first key shrinks that to nothing.

fn masked(s: vec4f, base: u32, key: u32, first: u32, last: u32) -> vec4f {
  return select(vec4f(-1e30), s * p.scale, seen(base, four(key), vec4u(first), vec4u(last)));
}
fn mask_tile(s: mat4x4f, base: u32, key: u32, first: vec4u, last: vec4u) -> mat4x4f {
  return mat4x4f(masked(s[0], base, key, first.x, last.x), masked(s[1], base, key, first.y, last.y),
                 masked(s[2], base, key, first.z, last.z), masked(s[3], base, key, first.w, last.w));
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

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let lane = index % SPAN;
  let tiles = (p.seq + ROWS - 1u) / ROWS;
  let per_tile = (p.pairs + SPANS - 1u) / SPANS;
  let at = wg.y * groups.x + wg.x;
  if (at >= tiles * per_tile) { return; }
  let start = ROWS * (tiles - 1u - at / per_tile);  // the longest first
  let first_pair = (at % per_tile) * SPANS;
  let batches = vec2u(first_pair, min(first_pair + SPANS, p.pairs) - 1u) / p.heads;
  let wanted = first_pair + index / SPAN;
  let pair = min(wanted, p.pairs - 1u);
  let batch = pair / p.heads;
  let head = pair % p.heads;

  let first = start + 4u * lane;
  let rows = vec4u(batch * p.seq) + min(four(first), vec4u(p.seq - 1u));
  let out = rows * p.heads + head;
  let end = vec4u(p.kv_rows - 1u);
  let firsts = first_keys(rows, min(vec4u(position[0]) + four(first), end));
  let lasts = min(vec4u(position[0]) + last_tokens(four(first)), end);
  let begin = lowest_key(batches, start, min(position[0] + start, p.kv_rows - 1u));
  let last = min(position[0] + last_token(min(start + ROWS, p.seq) - 1u), p.kv_rows - 1u);
  let q_at = rows * p.q_stride + p.q_offset + head * HEAD;
  let k_at = batch * p.kv_rows * p.k_stride + p.k_offset + (head / p.group) * HEAD;
  let v_at = batch * p.kv_rows * p.v_stride + p.v_offset + (head / p.group) * HEAD;

  let dims = dims_of_head();
  var sum: array<mat4x4f, DIMS>;
  var top = vec4f(-1e30);
  var weight_sum = vec4f();
  for (var key = begin; key <= last; key += ROWS) {
    let own = min(four(key + 4u * lane), vec4u(last));
    let k_rows = k_at + own * p.k_stride;
    var s0 = mat4x4f(); var s1 = mat4x4f(); var s2 = mat4x4f(); var s3 = mat4x4f();
    for (var d = 0u; d < dims; d++) {
      let a = mat4x4f(load_q(q_at.x, d), load_q(q_at.y, d), load_q(q_at.z, d), load_q(q_at.w, d));
      let b = mat4x4f(load_k(k_rows.x, d), load_k(k_rows.y, d), load_k(k_rows.z, d), load_k(k_rows.w, d));
      s0 = tile_from(s0, a, b);
      if (SPAN > 1u) {
        s1 = tile_from(s1, a, swaps_x(b));
        s2 = tile_from(s2, a, swaps_y(b));
        s3 = tile_from(s3, a, swaps_xy(b));
      }
    }
    s0 = mask_tile(s0, batch * p.kv_rows, key + 4u * lane, firsts, lasts);
    var higher = max(top, tops_of(s0));
    if (SPAN > 1u) {
      s1 = mask_tile(s1, batch * p.kv_rows, key + 4u * (lane ^ 1u), firsts, lasts);
      s2 = mask_tile(s2, batch * p.kv_rows, key + 4u * (lane ^ 2u), firsts, lasts);
      s3 = mask_tile(s3, batch * p.kv_rows, key + 4u * (lane ^ 3u), firsts, lasts);
      higher = max(max(higher, tops_of(s1)), max(tops_of(s2), tops_of(s3)));
    }
    let shrink = exp(top - higher);
    top = higher;
    s0 = weigh(s0, top);
    weight_sum = sums_from(weight_sum * shrink, s0);
    if (SPAN > 1u) {
      s1 = weigh(s1, top);
      s2 = weigh(s2, top);
      s3 = weigh(s3, top);
      weight_sum = sums_from(sums_from(sums_from(weight_sum, s1), s2), s3);
    }
    let v_rows = v_at + own * p.v_stride;
    for (var d = 0u; d < dims; d++) {
      let b = mat4x4f(load_v(v_rows.x, d), load_v(v_rows.y, d), load_v(v_rows.z, d), load_v(v_rows.w, d));
      let old = sum[d];
      var o = mat4x4f(old[0] * shrink.x, old[1] * shrink.y, old[2] * shrink.z, old[3] * shrink.w);
      o = tile_from(o, s0, transpose(b));
      if (SPAN > 1u) {
        o = tile_from(o, s1, transpose(swaps_x(b)));
        o = tile_from(o, s2, transpose(swaps_y(b)));
        o = tile_from(o, s3, transpose(swaps_xy(b)));
      }
      sum[d] = o;
    }
  }

  let live = vec4<bool>(wanted < p.pairs) & (four(first) < vec4u(p.seq));
  let log_sum = log(weight_sum);
  if (live.x) { lse[out.x] = vec2f(top.x, log_sum.x); }
  if (live.y) { lse[out.y] = vec2f(top.y, log_sum.y); }
  if (live.z) { lse[out.z] = vec2f(top.z, log_sum.z); }
  if (live.w) { lse[out.w] = vec2f(top.w, log_sum.w); }
  for (var d = 0u; d < dims; d++) {
    let o = sum[d];
    if (live.x) { store_y(out.x * HEAD, d, o[0] / weight_sum.x); }
    if (live.y) { store_y(out.y * HEAD, d, o[1] / weight_sum.y); }
    if (live.z) { store_y(out.z * HEAD, d, o[2] / weight_sum.z); }
    if (live.w) { store_y(out.w * HEAD, d, o[3] / weight_sum.w); }
  }
}
