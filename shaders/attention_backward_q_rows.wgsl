// dq of causal attention, one query of one head per invocation. The weights are computed anew from the
// saved logsumexp: w = exp(q.k * scale - lse), ds = w * (dy.v - delta), dq = scale * sum ds * k.

struct Params {
  rows: u32, seq: u32, heads: u32, group: u32,
  stride: u32, q_offset: u32, k_offset: u32, v_offset: u32, scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;          // (rows, stride)
@group(0) @binding(2) var<storage, read> dy: array<f32>;           // (rows, heads * HEAD_SIZE)
@group(0) @binding(3) var<storage, read> lse: array<f32>;          // (rows, heads)
@group(0) @binding(4) var<storage, read> delta: array<f32>;        // (rows, heads)
@group(0) @binding(5) var<storage, read_write> dqkv: array<f32>;   // (rows, stride), the q columns

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (wg.y * groups.x + wg.x) * WORKGROUP + lane;
  if (i >= p.rows * p.heads) { return; }
  let row = i / p.heads;
  let head = i % p.heads;
  let first = (row / p.seq) * p.seq;
  let q_base = row * p.stride + p.q_offset + head * HEAD_SIZE;
  let kv_column = (head / p.group) * HEAD_SIZE;

  var query: array<f32, HEAD_SIZE>;
  var upstream: array<f32, HEAD_SIZE>;
  var sum: array<f32, HEAD_SIZE>;
  for (var d = 0u; d < HEAD_SIZE; d++) {
    query[d] = qkv[q_base + d] * p.scale;
    upstream[d] = dy[i * HEAD_SIZE + d];
  }
  for (var key = first; key <= row; key++) {
    let k_base = key * p.stride + p.k_offset + kv_column;
    let v_base = key * p.stride + p.v_offset + kv_column;
    var score = 0.0;
    var dw = 0.0;
    for (var d = 0u; d < HEAD_SIZE; d++) {
      score += query[d] * qkv[k_base + d];
      dw += upstream[d] * qkv[v_base + d];
    }
    let ds = exp(score - lse[i]) * (dw - delta[i]);
    for (var d = 0u; d < HEAD_SIZE; d++) { sum[d] += ds * qkv[k_base + d]; }
  }
  for (var d = 0u; d < HEAD_SIZE; d++) { dqkv[q_base + d] = sum[d] * p.scale; }
}
