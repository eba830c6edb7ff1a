// needs: LANES, HEAD, DIMS
// needs: p, position, dims_of_head, load_q, load_k, load_v, store_y, lse
// needs: lowest_key, last_token, seen
// Attention, one query of one head per invocation: online softmax over the keys. For a few queries over
// a long cache, where a tile of queries would be nearly empty.

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (wg.y * groups.x + wg.x) * LANES + lane;
  if (i >= p.pairs * p.seq) { return; }
  let row = i / p.heads;
  let head = i % p.heads;
  let batch = row / p.seq;
  let token = row % p.seq;
  let begin = lowest_key(vec2u(batch), token, min(position[0] + token, p.kv_rows - 1u));
  let end = min(position[0] + last_token(token) + 1u, p.kv_rows);
  let q_at = row * p.q_stride + p.q_offset + head * HEAD;
  let kv_row = batch * p.kv_rows;
  let k_at = kv_row * p.k_stride + p.k_offset + (head / p.group) * HEAD;
  let v_at = kv_row * p.v_stride + p.v_offset + (head / p.group) * HEAD;

  let dims = dims_of_head();
  var query: array<vec4f, DIMS>;
  var sum: array<vec4f, DIMS>;
  for (var d = 0u; d < dims; d++) { query[d] = load_q(q_at, d) * p.scale; }
  var top = -1e30;
  var weight_sum = 0.0;
  for (var j = begin; j < end; j++) {
    var score = 0.0;
    for (var d = 0u; d < dims; d++) { score += dot(query[d], load_k(k_at + j * p.k_stride, d)); }
    score = select(-1e30, score, seen(kv_row, vec4u(j), vec4u(begin), vec4u(end - 1u)).x);
    let higher = max(top, score);
    let shrink = exp(top - higher);
    let weight = exp(score - higher);
    top = higher;
    weight_sum = weight_sum * shrink + weight;
    for (var d = 0u; d < dims; d++) { sum[d] = sum[d] * shrink + weight * load_v(v_at + j * p.v_stride, d); }
  }
  for (var d = 0u; d < dims; d++) { store_y(i * HEAD, d, sum[d] / weight_sum); }
  lse[i] = vec2f(top, log(weight_sum));
}
