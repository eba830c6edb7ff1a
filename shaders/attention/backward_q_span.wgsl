// needs: LANES, HEAD, DIMS
// needs: lse, p, dims_of_head, load_qkv, load_dy, store_dqkv
// needs: delta, load_y
// needs: four, ROWS, SPANS, dot_from, tile_from, swaps_x, swaps_y, swaps_xy
// needs: SPAN
// needs: seen, first_keys, last_tokens, last_token, lowest_key
// dq of attention, ROWS queries of one head per span of lanes, ROWS keys at a time; each lane holds 4
// queries. The weights are computed anew from the saved logsumexp: w = exp(q.k * scale - lse),
// ds = w * (dy.v - delta), dq = scale * sum ds * k. The deltas are made here, and left for the pass over keys.

fn score_gradient(s: vec4f, dw: vec4f, lse: vec2f, delta: f32, base: u32, key: u32, first: u32, last: u32) -> vec4f {
  return select(vec4f(), exp(s * p.scale - lse.x - lse.y) * (dw - delta), seen(base, four(key), vec4u(first), vec4u(last)));
}
fn score_gradients(s: mat4x4f, dw: mat4x4f, lse: mat4x2f, delta: vec4f, base: u32, key: u32, first: vec4u, last: vec4u) -> mat4x4f {
  return mat4x4f(
    score_gradient(s[0], dw[0], lse[0], delta.x, base, key, first.x, last.x),
    score_gradient(s[1], dw[1], lse[1], delta.y, base, key, first.y, last.y),
    score_gradient(s[2], dw[2], lse[2], delta.z, base, key, first.z, last.z),
    score_gradient(s[3], dw[3], lse[3], delta.w, base, key, first.w, last.w));
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
  let last_query = min(start + ROWS, p.seq) - 1u;
  let rows = vec4u(batch * p.seq) + min(four(first), vec4u(last_query));
  let out = rows * p.all_heads + p.first_head + head;
  let lses = mat4x2f(lse[out.x], lse[out.y], lse[out.z], lse[out.w]);
  let q_at = rows * p.stride + p.q_offset + head * HEAD;
  let dy_at = out * HEAD;
  let kv_at = batch * p.seq * p.stride + (head / p.group) * HEAD;

  let firsts = first_keys(rows, four(first));
  let lasts = last_tokens(four(first));
  let last = last_token(last_query);

  let live = vec4<bool>(wanted < p.pairs) & (four(first) < vec4u(p.seq));
  let dims = dims_of_head();
  var deltas = vec4f();
  for (var d = 0u; d < dims; d++) {
    deltas = vec4f(dot_from(deltas.x, load_dy(dy_at.x, d), load_y(dy_at.x, d)), dot_from(deltas.y, load_dy(dy_at.y, d), load_y(dy_at.y, d)),
                   dot_from(deltas.z, load_dy(dy_at.z, d), load_y(dy_at.z, d)), dot_from(deltas.w, load_dy(dy_at.w, d), load_y(dy_at.w, d)));
  }
  if (live.x) { delta[out.x] = deltas.x; }
  if (live.y) { delta[out.y] = deltas.y; }
  if (live.z) { delta[out.z] = deltas.z; }
  if (live.w) { delta[out.w] = deltas.w; }

  var sum: array<mat4x4f, DIMS>;
  for (var key = lowest_key(batches, start, start); key <= last; key += ROWS) {
    let kv_rows = kv_at + min(four(key + 4u * lane), vec4u(last)) * p.stride;
    let k_at = kv_rows + p.k_offset;
    let v_at = kv_rows + p.v_offset;
    var s0 = mat4x4f(); var s1 = mat4x4f(); var s2 = mat4x4f(); var s3 = mat4x4f();
    for (var d = 0u; d < dims; d++) {
      let a = mat4x4f(load_qkv(q_at.x, d), load_qkv(q_at.y, d), load_qkv(q_at.z, d), load_qkv(q_at.w, d));
      let b = mat4x4f(load_qkv(k_at.x, d), load_qkv(k_at.y, d), load_qkv(k_at.z, d), load_qkv(k_at.w, d));
      s0 = tile_from(s0, a, b);
      if (SPAN > 1u) {
        s1 = tile_from(s1, a, swaps_x(b));
        s2 = tile_from(s2, a, swaps_y(b));
        s3 = tile_from(s3, a, swaps_xy(b));
      }
    }
    var w0 = mat4x4f(); var w1 = mat4x4f(); var w2 = mat4x4f(); var w3 = mat4x4f();
    for (var d = 0u; d < dims; d++) {
      let a = mat4x4f(load_dy(dy_at.x, d), load_dy(dy_at.y, d), load_dy(dy_at.z, d), load_dy(dy_at.w, d));
      let b = mat4x4f(load_qkv(v_at.x, d), load_qkv(v_at.y, d), load_qkv(v_at.z, d), load_qkv(v_at.w, d));
      w0 = tile_from(w0, a, b);
      if (SPAN > 1u) {
        w1 = tile_from(w1, a, swaps_x(b));
        w2 = tile_from(w2, a, swaps_y(b));
        w3 = tile_from(w3, a, swaps_xy(b));
      }
    }
    s0 = score_gradients(s0, w0, lses, deltas, batch * p.seq, key + 4u * lane, firsts, lasts);
    if (SPAN > 1u) {
      s1 = score_gradients(s1, w1, lses, deltas, batch * p.seq, key + 4u * (lane ^ 1u), firsts, lasts);
      s2 = score_gradients(s2, w2, lses, deltas, batch * p.seq, key + 4u * (lane ^ 2u), firsts, lasts);
      s3 = score_gradients(s3, w3, lses, deltas, batch * p.seq, key + 4u * (lane ^ 3u), firsts, lasts);
    }
    for (var d = 0u; d < dims; d++) {
      let b = mat4x4f(load_qkv(k_at.x, d), load_qkv(k_at.y, d), load_qkv(k_at.z, d), load_qkv(k_at.w, d));
      var o = tile_from(sum[d], s0, transpose(b));
      if (SPAN > 1u) {
        o = tile_from(o, s1, transpose(swaps_x(b)));
        o = tile_from(o, s2, transpose(swaps_y(b)));
        o = tile_from(o, s3, transpose(swaps_xy(b)));
      }
      sum[d] = o;
    }
  }

  let dq_at = rows * p.d_stride + head * HEAD;
  for (var d = 0u; d < dims; d++) {
    let o = sum[d];
    if (live.x) { store_dqkv(dq_at.x, d, o[0] * p.scale); }
    if (live.y) { store_dqkv(dq_at.y, d, o[1] * p.scale); }
    if (live.z) { store_dqkv(dq_at.z, d, o[2] * p.scale); }
    if (live.w) { store_dqkv(dq_at.w, d, o[3] * p.scale); }
  }
}
