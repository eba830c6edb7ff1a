// needs: HEAD, DIMS
// needs: lse, delta, p, dims_of_head, load_qkv, load_dy, store_dqkv
// needs: ROWS, rows_of, DEPTH, CHUNKS, panel_a, panel_b, meet, put_tile, panel_c, gather
// needs: seen, last_token, first_keys, last_tokens, lowest_key
// dq of attention, 32 queries of one head per workgroup, 32 keys at a time. The weights are computed anew
// from the saved logsumexp: w = exp(q.k * scale - lse), ds = w * (dy.v - delta), dq = scale * sum ds * k.

fn score_gradient(s: vec4f, dw: vec4f, lse: vec2f, delta: f32, base: u32, keys: vec4u, first: u32, last: u32) -> vec4f {
  return select(vec4f(), exp(s * p.scale - lse.x - lse.y) * (dw - delta), seen(base, keys, vec4u(first), vec4u(last)));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let x = lane % 8u;
  let y = lane / 8u;
  let tiles = (p.seq + ROWS - 1u) / ROWS;
  let at = wg.y * groups.x + wg.x;
  if (at >= tiles * p.pairs) { return; }
  let start = ROWS * (tiles - 1u - at / p.pairs);  // the longest first
  let batch = (at % p.pairs) / p.heads;
  let base = batch * p.seq;
  let head = (at % p.pairs) % p.heads;
  let last_query = min(start + ROWS, p.seq) - 1u;
  let last = last_token(last_query);
  let queries = rows_of(start + y);
  let rows = vec4u(base) + min(queries, vec4u(last_query));
  let firsts = first_keys(rows, queries);
  let lasts = last_tokens(queries);
  let out = rows * p.heads + head;
  let lses = mat4x2f(lse[out.x], lse[out.y], lse[out.z], lse[out.w]);
  let deltas = vec4f(delta[out.x], delta[out.y], delta[out.z], delta[out.w]);
  let k_head = p.k_offset + (head / p.group) * HEAD;
  let v_head = p.v_offset + (head / p.group) * HEAD;

  let dims = dims_of_head();
  let panels = (dims + DEPTH - 1u) / DEPTH;
  var sum: array<mat4x4f, CHUNKS>;
  for (var key = lowest_key(vec2u(batch), start, start); key <= last; key += ROWS) {
    // Panels of q and k, then of dy and v: one loop, so that the compiler meets its barriers once.
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
          let row = base + min(start + r, last_query);
          if (of_scores) { a = load_qkv(row * p.stride + head * HEAD, d + c); } else { a = load_dy((row * p.heads + head) * HEAD, d + c); }
          b = load_qkv((base + min(key + r, last)) * p.stride + select(v_head, k_head, of_scores), d + c);
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
    let keys = rows_of(key + x);
    put_tile(mat4x4f(score_gradient(s[0], dw[0], lses[0], deltas.x, base, keys, firsts.x, lasts.x),
                     score_gradient(s[1], dw[1], lses[1], deltas.y, base, keys, firsts.y, lasts.y),
                     score_gradient(s[2], dw[2], lses[2], deltas.z, base, keys, firsts.z, lasts.z),
                     score_gradient(s[3], dw[3], lses[3], deltas.w, base, keys, firsts.w, lasts.w)), y, x);
    let count = min(ROWS, last + 1u - key);
    for (var c = 0u; c < CHUNKS; c++) {
      workgroupBarrier();
      for (var i = lane; i < ROWS * 8u; i += 64u) {
        var value = vec4f();
        if (8u * c + i % 8u < DIMS) {
          value = load_qkv((base + min(key + i / 8u, last)) * p.stride + k_head, 8u * c + i % 8u);
        }
        panel_c[i / 8u][i % 8u] = value;
      }
      workgroupBarrier();
      sum[c] = gather(sum[c], y, x, count);
    }
  }

  for (var i = 0u; i < 4u; i++) {
    if (queries[i] > last_query) { break; }
    let row = (base + queries[i]) * p.stride + head * HEAD;
    for (var c = 0u; c < CHUNKS; c++) {
      if (8u * c + x < DIMS) { store_dqkv(row, 8u * c + x, sum[c][i] * p.scale); }
    }
  }
}
