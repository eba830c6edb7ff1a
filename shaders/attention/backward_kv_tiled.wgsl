// needs: HEAD, DIMS
// needs: lse, p, load_qkv, load_dy, delta, store_dqkv
// needs: ROWS, rows_of, eighth, DEPTH, CHUNKS, put_panels, meet, put_tile, own_tile, put_values, gather
// needs: seen, last_tokens, first_query, end_of_queries, first_keys
// dk and dv of attention, 32 keys of one kv head per workgroup, 32 queries at a time, over the query
// heads of the group: always in the same order, so no atomics. The weights are those of
// backward_q_tiled.wgsl; here a lane's own rows are keys and the other side's are queries.

// Both sums of a wide head are more than a lane has registers: a workgroup has 128 of its dims.
const SLICES = (CHUNKS + 3u) / 4u;
const SLICE = (CHUNKS + SLICES - 1u) / SLICES;

fn weights(s: vec4f, lse: mat2x4f, base: u32, key: u32, queries: vec4u, firsts: vec4u) -> vec4f {
  let mask = seen(base, vec4u(key), firsts, last_tokens(queries)) & (queries < vec4u(p.seq));
  return select(vec4f(), exp(s * p.scale - lse[0] - lse[1]), mask);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let x = eighth(lane % 8u);
  let y = eighth(lane / 8u);
  let tiles = (p.seq + ROWS - 1u) / ROWS;
  let at = (wg.y * groups.x + wg.x) / SLICES;
  let first_chunk = SLICE * ((wg.y * groups.x + wg.x) % SLICES);
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

  // What this lane fetches of each side: one vec4f of DEPTH, of row `fetched` and 16 rows further down.
  let fetched = lane / DEPTH;
  let own = (base + min(start + fetched + vec2u(0u, 16u), vec2u(last))) * p.stride;
  var dk: array<mat4x4f, SLICE>;
  var dv: array<mat4x4f, SLICE>;
  for (var member = 0u; member < p.group; member++) {
    let head = kv_head * p.group + member;
    for (var query = begin; query < end; query += ROWS) {
      let other = base + min(query + fetched + vec2u(0u, 16u), vec2u(last));
      let q_at = other * p.stride + p.q_offset + head * HEAD;
      let dy_at = (other * p.all_heads + p.first_head + head) * HEAD;
      var s = mat4x4f();
      for (var first = 0u; first < DIMS; first += DEPTH) {
        let d = first + lane % DEPTH;
        var a = array<vec4f, 2>();
        var b = array<vec4f, 2>();
        if (DIMS % DEPTH == 0u || d < DIMS) {
          a = array<vec4f, 2>(load_qkv(own.x + k_head, d), load_qkv(own.y + k_head, d));
          b = array<vec4f, 2>(load_qkv(q_at.x, d), load_qkv(q_at.y, d));
        }
        workgroupBarrier();
        put_panels(a, b, fetched, lane % DEPTH);
        workgroupBarrier();
        s = meet(s, y, x);
      }
      let queries = rows_of(query + x);
      let rows = vec4u(base) + min(queries, vec4u(last));
      let firsts = first_keys(rows, queries);
      let out = rows * p.all_heads + p.first_head + head;
      let lses = transpose(mat4x2f(lse[out.x], lse[out.y], lse[out.z], lse[out.w]));
      s = mat4x4f(weights(s[0], lses, base, keys.x, queries, firsts), weights(s[1], lses, base, keys.y, queries, firsts),
                  weights(s[2], lses, base, keys.z, queries, firsts), weights(s[3], lses, base, keys.w, queries, firsts));
      put_tile(s, y, x);  // where it needs no registers while dy.v is summed
      var dw = mat4x4f();
      for (var first = 0u; first < DIMS; first += DEPTH) {
        let d = first + lane % DEPTH;
        var a = array<vec4f, 2>();
        var b = array<vec4f, 2>();
        if (DIMS % DEPTH == 0u || d < DIMS) {
          a = array<vec4f, 2>(load_qkv(own.x + v_head, d), load_qkv(own.y + v_head, d));
          b = array<vec4f, 2>(load_dy(dy_at.x, d), load_dy(dy_at.y, d));
        }
        workgroupBarrier();
        put_panels(a, b, fetched, lane % DEPTH);
        workgroupBarrier();
        dw = meet(dw, y, x);
      }
      let deltas = vec4f(delta[out.x], delta[out.y], delta[out.z], delta[out.w]);
      s = own_tile(y, x);
      dw = mat4x4f(s[0] * (dw[0] - deltas), s[1] * (dw[1] - deltas), s[2] * (dw[2] - deltas), s[3] * (dw[3] - deltas));
      let gathered = base + min(query + lane / 8u + vec4u(0u, 8u, 16u, 24u), vec4u(last));
      let dy_rows = (gathered * p.all_heads + p.first_head + head) * HEAD;
      let q_rows = gathered * p.stride + p.q_offset + head * HEAD;
      for (var c = 0u; c < SLICE; c++) {
        let d = 8u * (first_chunk + c) + lane % 8u;
        var values = mat4x4f();
        if (DIMS % (8u * SLICES) == 0u || d < DIMS) {
          values = mat4x4f(load_dy(dy_rows.x, d), load_dy(dy_rows.y, d), load_dy(dy_rows.z, d), load_dy(dy_rows.w, d));
        }
        workgroupBarrier();
        put_values(values, lane / 8u, lane % 8u);
        workgroupBarrier();
        dv[c] = gather(dv[c], y, x);
      }
      for (var c = 0u; c < SLICE; c++) {
        let d = 8u * (first_chunk + c) + lane % 8u;
        var values = mat4x4f();
        if (DIMS % (8u * SLICES) == 0u || d < DIMS) {
          values = mat4x4f(load_qkv(q_rows.x, d), load_qkv(q_rows.y, d), load_qkv(q_rows.z, d), load_qkv(q_rows.w, d));
        }
        workgroupBarrier();
        if (c == 0u) { put_tile(dw, y, x); }
        put_values(values, lane / 8u, lane % 8u);
        workgroupBarrier();
        dk[c] = gather(dk[c], y, x);
      }
    }
  }

  for (var i = 0u; i < 4u; i++) {
    if (keys[i] > last) { break; }
    let row = (base + keys[i]) * p.d_stride + kv_head * HEAD;
    for (var c = 0u; c < SLICE; c++) {
      let d = 8u * (first_chunk + c) + x;
      if (d < DIMS) {
        store_dqkv(row + p.dk_offset, d, dk[c][i] * p.scale);
        store_dqkv(row + p.dv_offset, d, dv[c][i]);
      }
    }
  }
}
