// needs: LANES, HEAD, DIMS
// needs: lse, p, delta, dims_of_head, load_qkv, load_dy, store_dqkv
// needs: four, ROWS, SPANS, tile_from, swaps_x, swaps_y, swaps_xy
// needs: SPAN, swap_x, swap_y, swap_xy
// needs: seen, last_tokens, first_keys, first_query, end_of_queries
// dk and dv of attention, ROWS keys of one kv head per span of lanes, ROWS queries at a time, over the
// query heads of the group: always in the same order, so no atomics. Each lane holds 4 keys.
// The weights are those of backward_q_span.wgsl.

// Of one key and 4 queries.
fn weights(s: vec4f, lse: mat2x4f, base: u32, key: u32, queries: vec4u, firsts: vec4u) -> vec4f {
  let mask = seen(base, vec4u(key), firsts, last_tokens(queries)) & (queries < vec4u(p.seq));
  return select(vec4f(), exp(s * p.scale - lse[0] - lse[1]), mask);
}
fn weigh(s: mat4x4f, lse: mat2x4f, key: u32, query: u32, base: u32) -> mat4x4f {
  let queries = four(query);
  let firsts = first_keys(vec4u(base) + min(queries, vec4u(p.seq - 1u)), queries);
  return mat4x4f(weights(s[0], lse, base, key, queries, firsts), weights(s[1], lse, base, key + 1u, queries, firsts),
                 weights(s[2], lse, base, key + 2u, queries, firsts), weights(s[3], lse, base, key + 3u, queries, firsts));
}
fn score_gradients(w: mat4x4f, dw: mat4x4f, delta: vec4f) -> mat4x4f {
  return mat4x4f(w[0] * (dw[0] - delta), w[1] * (dw[1] - delta), w[2] * (dw[2] - delta), w[3] * (dw[3] - delta));
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) index: u32) {
  let lane = index % SPAN;
  let tiles = (p.seq + ROWS - 1u) / ROWS;
  let per_tile = (p.pairs + SPANS - 1u) / SPANS;
  let at = wg.y * groups.x + wg.x;
  if (at >= tiles * per_tile) { return; }
  let start = ROWS * (at / per_tile);  // the longest first
  let first_pair = (at % per_tile) * SPANS;
  let wanted = first_pair + index / SPAN;
  let pair = min(wanted, p.pairs - 1u);
  let kv_heads = p.heads / p.group;
  let batches = vec2u(first_pair, min(first_pair + SPANS, p.pairs) - 1u) / kv_heads;
  let batch = pair / kv_heads;
  let kv_head = pair % kv_heads;

  let first = start + 4u * lane;
  let keys = vec4u(batch * p.seq) + min(four(first), vec4u(p.seq - 1u));
  let kv_at = keys * p.stride + kv_head * HEAD;
  let k_at = kv_at + p.k_offset;
  let v_at = kv_at + p.v_offset;

  let begin = first_query(start);
  let end = end_of_queries(batches, start, ROWS);

  let dims = dims_of_head();
  var dk: array<mat4x4f, DIMS>;
  var dv: array<mat4x4f, DIMS>;
  for (var member = 0u; member < p.group; member++) {
    let head = kv_head * p.group + member;
    for (var query = begin; query < end; query += ROWS) {
      let rows = vec4u(batch * p.seq) + min(four(query + 4u * lane), vec4u(p.seq - 1u));
      let out = rows * p.all_heads + p.first_head + head;
      let q_at = rows * p.stride + p.q_offset + head * HEAD;
      let dy_at = out * HEAD;
      var s0 = mat4x4f(); var s1 = mat4x4f(); var s2 = mat4x4f(); var s3 = mat4x4f();
      for (var d = 0u; d < dims; d++) {
        let a = mat4x4f(load_qkv(k_at.x, d), load_qkv(k_at.y, d), load_qkv(k_at.z, d), load_qkv(k_at.w, d));
        let b = mat4x4f(load_qkv(q_at.x, d), load_qkv(q_at.y, d), load_qkv(q_at.z, d), load_qkv(q_at.w, d));
        s0 = tile_from(s0, a, b);
        if (SPAN > 1u) {
          s1 = tile_from(s1, a, swaps_x(b));
          s2 = tile_from(s2, a, swaps_y(b));
          s3 = tile_from(s3, a, swaps_xy(b));
        }
      }
      let lses = transpose(mat4x2f(lse[out.x], lse[out.y], lse[out.z], lse[out.w]));
      s0 = weigh(s0, lses, first, query + 4u * lane, batch * p.seq);
      if (SPAN > 1u) {
        s1 = weigh(s1, mat2x4f(swap_x(lses[0]), swap_x(lses[1])), first, query + 4u * (lane ^ 1u), batch * p.seq);
        s2 = weigh(s2, mat2x4f(swap_y(lses[0]), swap_y(lses[1])), first, query + 4u * (lane ^ 2u), batch * p.seq);
        s3 = weigh(s3, mat2x4f(swap_xy(lses[0]), swap_xy(lses[1])), first, query + 4u * (lane ^ 3u), batch * p.seq);
      }
      var w0 = mat4x4f(); var w1 = mat4x4f(); var w2 = mat4x4f(); var w3 = mat4x4f();
      for (var d = 0u; d < dims; d++) {
        let a = mat4x4f(load_qkv(v_at.x, d), load_qkv(v_at.y, d), load_qkv(v_at.z, d), load_qkv(v_at.w, d));
        let b = mat4x4f(load_dy(dy_at.x, d), load_dy(dy_at.y, d), load_dy(dy_at.z, d), load_dy(dy_at.w, d));
        w0 = tile_from(w0, a, b);
        var o = tile_from(dv[d], s0, transpose(b));
        if (SPAN > 1u) {
          let b1 = swaps_x(b);
          let b2 = swaps_y(b);
          let b3 = swaps_xy(b);
          w1 = tile_from(w1, a, b1);
          w2 = tile_from(w2, a, b2);
          w3 = tile_from(w3, a, b3);
          o = tile_from(o, s1, transpose(b1));
          o = tile_from(o, s2, transpose(b2));
          o = tile_from(o, s3, transpose(b3));
        }
        dv[d] = o;
      }
      let deltas = vec4f(delta[out.x], delta[out.y], delta[out.z], delta[out.w]);
      s0 = score_gradients(s0, w0, deltas);
      if (SPAN > 1u) {
        s1 = score_gradients(s1, w1, swap_x(deltas));
        s2 = score_gradients(s2, w2, swap_y(deltas));
        s3 = score_gradients(s3, w3, swap_xy(deltas));
      }
      for (var d = 0u; d < dims; d++) {
        let b = mat4x4f(load_qkv(q_at.x, d), load_qkv(q_at.y, d), load_qkv(q_at.z, d), load_qkv(q_at.w, d));
        var o = tile_from(dk[d], s0, transpose(b));
        if (SPAN > 1u) {
          o = tile_from(o, s1, transpose(swaps_x(b)));
          o = tile_from(o, s2, transpose(swaps_y(b)));
          o = tile_from(o, s3, transpose(swaps_xy(b)));
        }
        dk[d] = o;
      }
    }
  }

  let live = vec4<bool>(wanted < p.pairs) & (four(first) < vec4u(p.seq));
  let dk_at = keys * p.d_stride + p.dk_offset + kv_head * HEAD;
  let dv_at = keys * p.d_stride + p.dv_offset + kv_head * HEAD;
  for (var d = 0u; d < dims; d++) {
    let key = dk[d];
    let value = dv[d];
    if (live.x) { store_dqkv(dk_at.x, d, key[0] * p.scale); store_dqkv(dv_at.x, d, value[0]); }
    if (live.y) { store_dqkv(dk_at.y, d, key[1] * p.scale); store_dqkv(dv_at.y, d, value[1]); }
    if (live.z) { store_dqkv(dk_at.z, d, key[2] * p.scale); store_dqkv(dv_at.z, d, value[2]); }
    if (live.w) { store_dqkv(dk_at.w, d, key[3] * p.scale); store_dqkv(dv_at.w, d, value[3]); }
  }
}
