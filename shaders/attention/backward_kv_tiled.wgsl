// needs: HEAD, DIMS
// needs: lse, p, dims_of_head, load_qkv, load_dy, delta, store_dqkv
// needs: ROWS, rows_of, DEPTH, CHUNKS, panel_a, panel_b, meet, put_tile, panel_c, gather
// needs: seen, last_tokens, first_query, end_of_queries, first_keys
// dk and dv of attention, 32 keys of one kv head per workgroup, 32 queries at a time, over the query
// heads of the group: always in the same order, so no atomics. The weights are those of
// backward_q_tiled.wgsl; here a lane's own rows are keys and the other side's are queries.

fn weights(s: vec4f, lse: mat2x4f, base: u32, key: u32, queries: vec4u, firsts: vec4u) -> vec4f {
  let mask = seen(base, vec4u(key), firsts, last_tokens(queries)) & (queries < vec4u(p.seq));
  return select(vec4f(), exp(s * p.scale - lse[0] - lse[1]), mask);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let x = lane % 8u;
  let y = lane / 8u;
  let tiles = (p.seq + ROWS - 1u) / ROWS;
  let at = wg.y * groups.x + wg.x;
  if (at >= tiles * p.pairs) { return; }
  let start = ROWS * (at / p.pairs);  // the longest first
  let kv_heads = p.heads / p.group;
  let batch = (at % p.pairs) / kv_heads;
  let base = batch * p.seq;
  let kv_head = (at % p.pairs) % kv_heads;
  let last = p.seq - 1u;
  let keys = rows_of(start + y);
  let k_head = p.k_offset + kv_head * HEAD;
  let v_head = p.v_offset + kv_head * HEAD;

  let begin = first_query(start);
  let end = end_of_queries(vec2u(batch), start, ROWS);

  let dims = dims_of_head();
  let panels = (dims + DEPTH - 1u) / DEPTH;
  var sums: array<mat4x4f, 2u * CHUNKS>;  // of dv, then of dk
  for (var member = 0u; member < p.group; member++) {
    let head = kv_head * p.group + member;
    for (var query = begin; query < end; query += ROWS) {
      // Panels of k and q, then of v and dy: one loop, so that the compiler meets its barriers once.
      var s = mat4x4f();
      var dw = mat4x4f();
      for (var t = 0u; t < 2u * panels; t++) {
        let of_scores = t < panels;
        let d = DEPTH * select(t - panels, t, of_scores);
        workgroupBarrier();
        for (var i = lane; i < ROWS * DEPTH; i += 64u) {
          let r = i / DEPTH;
          let c = i % DEPTH;
          var a = vec4f();
          var b = vec4f();
          if (d + c < dims) {
            a = load_qkv((base + min(start + r, last)) * p.stride + select(v_head, k_head, of_scores), d + c);
            let row = base + min(query + r, last);
            if (of_scores) { b = load_qkv(row * p.stride + head * HEAD, d + c); } else { b = load_dy((row * p.heads + head) * HEAD, d + c); }
          }
          panel_a[c][r] = a;
          panel_b[c][r] = b;
        }
        workgroupBarrier();
        if (t == panels) {
          s = dw;
          dw = mat4x4f();
        }
        dw = meet(dw, y, x, min(DEPTH, dims - d));
      }
      let queries = rows_of(query + x);
      let count = min(ROWS, p.seq - query);
      let rows = vec4u(base) + min(queries, vec4u(last));
      let firsts = first_keys(rows, queries);
      let out = rows * p.heads + head;
      let lses = transpose(mat4x2f(lse[out.x], lse[out.y], lse[out.z], lse[out.w]));
      let deltas = vec4f(delta[out.x], delta[out.y], delta[out.z], delta[out.w]);
      s = mat4x4f(weights(s[0], lses, base, keys.x, queries, firsts), weights(s[1], lses, base, keys.y, queries, firsts),
                  weights(s[2], lses, base, keys.z, queries, firsts), weights(s[3], lses, base, keys.w, queries, firsts));
      dw = mat4x4f(s[0] * (dw[0] - deltas), s[1] * (dw[1] - deltas), s[2] * (dw[2] - deltas), s[3] * (dw[3] - deltas));
      for (var c = 0u; c < 2u * CHUNKS; c++) {
        let of_values = c < CHUNKS;
        let d = 8u * select(c - CHUNKS, c, of_values);
        workgroupBarrier();
        if (c == 0u) { put_tile(s, y, x); }
        if (c == CHUNKS) { put_tile(dw, y, x); }
        for (var i = lane; i < ROWS * 8u; i += 64u) {
          var value = vec4f();
          if (d + i % 8u < DIMS) {
            let row = base + min(query + i / 8u, last);
            if (of_values) { value = load_dy((row * p.heads + head) * HEAD, d + i % 8u); } else { value = load_qkv(row * p.stride + head * HEAD, d + i % 8u); }
          }
          panel_c[i / 8u][i % 8u] = value;
        }
        workgroupBarrier();
        sums[c] = gather(sums[c], y, x, count);
      }
    }
  }

  for (var i = 0u; i < 4u; i++) {
    if (keys[i] > last) { break; }
    let row = (base + keys[i]) * p.stride;
    for (var c = 0u; c < CHUNKS; c++) {
      if (8u * c + x < DIMS) {
        store_dqkv(row + k_head, 8u * c + x, sums[CHUNKS + c][i] * p.scale);
        store_dqkv(row + v_head, 8u * c + x, sums[c][i]);
      }
    }
  }
}
