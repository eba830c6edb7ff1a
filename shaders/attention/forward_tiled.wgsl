// needs: HEAD, DIMS
// needs: p, position, load_q, load_k, load_v, lse, store_y
// needs: ROWS, rows_of, eighth, CHUNKS, DEPTH, put_panels, meet, put_tile, put_values, gather
// needs: seen, first_keys, last_tokens, lowest_key, last_token
// Attention, 32 queries of one head per workgroup, 32 keys at a time: online softmax.

var<workgroup> part: array<array<vec4f, 8>, 8>;  // (x, y), of 4 queries

fn masked(s: vec4f, base: u32, keys: vec4u, first: u32, last: u32) -> vec4f {
  return select(vec4f(-1e30), s * p.scale, seen(base, keys, vec4u(first), vec4u(last)));
}
fn top_of(s: vec4f) -> f32 { return max(max(s.x, s.y), max(s.z, s.w)); }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let x = eighth(lane % 8u);
  let y_lane = eighth(lane / 8u);
  let tiles = (p.seq + ROWS - 1u) / ROWS;
  let at = wg.y * groups.x + wg.x;
  if (at >= tiles * p.pairs) { return; }
  let start = ROWS * (tiles - 1u - at / p.pairs);  // the longest first
  let batch = (at % p.pairs) / p.heads;
  let head = (at % p.pairs) % p.heads;
  let queries = rows_of(start + y_lane);
  let rows = vec4u(batch * p.seq) + min(queries, vec4u(p.seq - 1u));
  let end = vec4u(p.kv_rows - 1u);
  let firsts = first_keys(rows, min(vec4u(position[0]) + queries, end));
  let lasts = min(vec4u(position[0]) + last_tokens(queries), end);
  let begin = lowest_key(vec2u(batch), start, min(position[0] + start, p.kv_rows - 1u));
  let last = min(position[0] + last_token(min(start + ROWS, p.seq) - 1u), p.kv_rows - 1u);
  let q_head = p.q_offset + head * HEAD;
  let k_head = p.k_offset + (head / p.group) * HEAD;
  let v_head = p.v_offset + (head / p.group) * HEAD;

  // What this lane fetches of q and k: one vec4f of DEPTH, of row `fetched` and 16 rows further down.
  let fetched = lane / DEPTH;
  let q_at = q_head + (batch * p.seq + min(start + fetched + vec2u(0u, 16u), vec2u(p.seq - 1u))) * p.q_stride;
  var sum: array<mat4x4f, CHUNKS>;
  var top = vec4f(-1e30);
  var weight_sum = vec4f();  // over this lane's keys
  for (var key = begin; key <= last; key += ROWS) {
    let k_at = k_head + (batch * p.kv_rows + min(key + fetched + vec2u(0u, 16u), vec2u(last))) * p.k_stride;
    var s = mat4x4f();
    for (var first = 0u; first < DIMS; first += DEPTH) {
      let d = first + lane % DEPTH;
      var a = array<vec4f, 2>();
      var b = array<vec4f, 2>();
      if (DIMS % DEPTH == 0u || d < DIMS) {
        a = array<vec4f, 2>(load_q(q_at.x, d), load_q(q_at.y, d));
        b = array<vec4f, 2>(load_k(k_at.x, d), load_k(k_at.y, d));
      }
      workgroupBarrier();
      put_panels(a, b, fetched, lane % DEPTH);
      workgroupBarrier();
      s = meet(s, y_lane, x);
    }
    let keys = rows_of(key + x);
    let base = batch * p.kv_rows;
    s = mat4x4f(masked(s[0], base, keys, firsts.x, lasts.x), masked(s[1], base, keys, firsts.y, lasts.y),
                masked(s[2], base, keys, firsts.z, lasts.z), masked(s[3], base, keys, firsts.w, lasts.w));
    part[x][y_lane] = vec4f(top_of(s[0]), top_of(s[1]), top_of(s[2]), top_of(s[3]));
    workgroupBarrier();
    var higher = top;
    for (var i = 0u; i < 8u; i++) { higher = max(higher, part[i][y_lane]); }
    let shrink = exp(top - higher);
    top = higher;
    s = mat4x4f(exp(s[0] - top.x), exp(s[1] - top.y), exp(s[2] - top.z), exp(s[3] - top.w));
    let t = transpose(s);
    weight_sum = weight_sum * shrink + (t[0] + t[1] + t[2] + t[3]);
    put_tile(s, y_lane, x);
    let v_at = v_head + (batch * p.kv_rows + min(key + lane / 8u + 8u * vec4u(0u, 1u, 2u, 3u), vec4u(last))) * p.v_stride;
    for (var c = 0u; c < CHUNKS; c++) {
      let d = 8u * c + lane % 8u;
      var values = mat4x4f();
      if (DIMS % 8u == 0u || d < DIMS) {
        values = mat4x4f(load_v(v_at.x, d), load_v(v_at.y, d), load_v(v_at.z, d), load_v(v_at.w, d));
      }
      workgroupBarrier();
      put_values(values, lane / 8u, lane % 8u);
      workgroupBarrier();
      let old = sum[c];
      sum[c] = gather(mat4x4f(old[0] * shrink.x, old[1] * shrink.y, old[2] * shrink.z, old[3] * shrink.w), y_lane, x);
    }
  }

  workgroupBarrier();
  part[x][y_lane] = weight_sum;
  workgroupBarrier();
  var total = vec4f();
  for (var i = 0u; i < 8u; i++) { total += part[i][y_lane]; }
  let log_sum = log(total);
  for (var i = 0u; i < 4u; i++) {
    let out = (batch * p.seq + queries[i]) * p.heads + head;
    if (queries[i] >= p.seq) { break; }
    if (x == 0u) { lse[out] = vec2f(top[i], log_sum[i]); }
    for (var c = 0u; c < CHUNKS; c++) {
      if (8u * c + x < DIMS) { store_y(out * HEAD, 8u * c + x, sum[c][i] / total[i]); }
    }
  }
}
