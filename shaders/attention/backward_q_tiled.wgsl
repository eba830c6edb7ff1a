// needs: HEAD, DIMS
// needs: lse, p, load_qkv, load_dy, store_dqkv
// needs: delta, load_y
// needs: ROWS, rows_of, eighth, DEPTH, CHUNKS, panel_a, panel_b, dot_from, put_panels, meet, put_tile, put_values, gather
// needs: seen, last_token, first_keys, last_tokens, lowest_key
// dq of attention, 32 queries of one head per workgroup, 32 keys at a time. The weights are computed anew
// from the saved logsumexp: w = exp(q.k * scale - lse), ds = w * (dy.v - delta), dq = scale * sum ds * k. The deltas are made here, and
// left for the pass over keys.

var<workgroup> deltas_of_rows: array<f32, ROWS>;

fn weights(s: vec4f, lse: vec2f, base: u32, keys: vec4u, first: u32, last: u32) -> vec4f {
  return select(vec4f(), exp(s * p.scale - lse.x - lse.y), seen(base, keys, vec4u(first), vec4u(last)));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let x = eighth(lane % 8u);
  let y = eighth(lane / 8u);
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
  let out = rows * p.all_heads + p.first_head + head;
  let lses = mat4x2f(lse[out.x], lse[out.y], lse[out.z], lse[out.w]);
  let k_head = p.k_offset + (head / p.group) * HEAD;
  let v_head = p.v_offset + (head / p.group) * HEAD;

  // What this lane fetches of each side: one vec4f of DEPTH, of row `fetched` and 16 rows further down.
  let fetched = lane / DEPTH;
  let own = base + min(start + fetched + vec2u(0u, 16u), vec2u(last_query));
  let q_at = own * p.stride + p.q_offset + head * HEAD;
  let dy_at = (own * p.all_heads + p.first_head + head) * HEAD;

  var own_delta = 0.0;
  for (var begin = 0u; begin < DIMS; begin += DEPTH) {
    let d = begin + lane % DEPTH;
    var a = array<vec4f, 2>();
    var b = array<vec4f, 2>();
    if (DIMS % DEPTH == 0u || d < DIMS) {
      a = array<vec4f, 2>(load_dy(dy_at.x, d), load_dy(dy_at.y, d));
      b = array<vec4f, 2>(load_y(dy_at.x, d), load_y(dy_at.y, d));
    }
    workgroupBarrier();
    put_panels(a, b, fetched, lane % DEPTH);
    workgroupBarrier();
    for (var i = 0u; i < DEPTH; i++) { own_delta = dot_from(own_delta, panel_a[i][lane % ROWS], panel_b[i][lane % ROWS]); }
  }
  if (lane < ROWS) {
    deltas_of_rows[lane] = own_delta;
    if (start + lane <= last_query) { delta[(base + start + lane) * p.all_heads + p.first_head + head] = own_delta; }
  }
  workgroupBarrier();
  let deltas = vec4f(deltas_of_rows[y], deltas_of_rows[y + 8u], deltas_of_rows[y + 16u], deltas_of_rows[y + 24u]);

  var sum: array<mat4x4f, CHUNKS>;
  for (var key = lowest_key(vec2u(batch), start, start); key <= last; key += ROWS) {
    let other = (base + min(key + fetched + vec2u(0u, 16u), vec2u(last))) * p.stride;
    var s = mat4x4f();
    for (var begin = 0u; begin < DIMS; begin += DEPTH) {
      let d = begin + lane % DEPTH;
      var a = array<vec4f, 2>();
      var b = array<vec4f, 2>();
      if (DIMS % DEPTH == 0u || d < DIMS) {
        a = array<vec4f, 2>(load_qkv(q_at.x, d), load_qkv(q_at.y, d));
        b = array<vec4f, 2>(load_qkv(other.x + k_head, d), load_qkv(other.y + k_head, d));
      }
      workgroupBarrier();
      put_panels(a, b, fetched, lane % DEPTH);
      workgroupBarrier();
      s = meet(s, y, x);
    }
    let keys = rows_of(key + x);
    s = mat4x4f(weights(s[0], lses[0], base, keys, firsts.x, lasts.x), weights(s[1], lses[1], base, keys, firsts.y, lasts.y),
                weights(s[2], lses[2], base, keys, firsts.z, lasts.z), weights(s[3], lses[3], base, keys, firsts.w, lasts.w));
    var dw = mat4x4f();
    for (var begin = 0u; begin < DIMS; begin += DEPTH) {
      let d = begin + lane % DEPTH;
      var a = array<vec4f, 2>();
      var b = array<vec4f, 2>();
      if (DIMS % DEPTH == 0u || d < DIMS) {
        a = array<vec4f, 2>(load_dy(dy_at.x, d), load_dy(dy_at.y, d));
        b = array<vec4f, 2>(load_qkv(other.x + v_head, d), load_qkv(other.y + v_head, d));
      }
      workgroupBarrier();
      put_panels(a, b, fetched, lane % DEPTH);
      workgroupBarrier();
      dw = meet(dw, y, x);
    }
    put_tile(mat4x4f(s[0] * (dw[0] - deltas.x), s[1] * (dw[1] - deltas.y), s[2] * (dw[2] - deltas.z), s[3] * (dw[3] - deltas.w)), y, x);
    let k_at = (base + min(key + lane / 8u + vec4u(0u, 8u, 16u, 24u), vec4u(last))) * p.stride + k_head;
    for (var c = 0u; c < CHUNKS; c++) {
      let d = 8u * c + lane % 8u;
      var values = mat4x4f();
      if (DIMS % 8u == 0u || d < DIMS) {
        values = mat4x4f(load_qkv(k_at.x, d), load_qkv(k_at.y, d), load_qkv(k_at.z, d), load_qkv(k_at.w, d));
      }
      workgroupBarrier();
      put_values(values, lane / 8u, lane % 8u);
      workgroupBarrier();
      sum[c] = gather(sum[c], y, x);
    }
  }

  for (var i = 0u; i < 4u; i++) {
    if (queries[i] > last_query) { break; }
    let row = (base + queries[i]) * p.d_stride + head * HEAD;
    for (var c = 0u; c < CHUNKS; c++) {
      if (8u * c + x < DIMS) { store_dqkv(row, 8u * c + x, sum[c][i] * p.scale); }
    }
  }
}
