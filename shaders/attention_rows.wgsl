// Causal attention, one query of one head per invocation: online softmax over the keys (flash style), so
// nothing of size T x T exists. Only the logarithm of the softmax sum is kept for the backward pass.
// Row r of q is (batch r / seq, position position[0] + r % seq); key j of a batch is row batch * kv_rows + j.

struct Params {
  rows: u32, seq: u32, heads: u32, group: u32, kv_rows: u32,
  q_stride: u32, q_offset: u32, k_stride: u32, k_offset: u32, v_stride: u32, v_offset: u32, scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read> position: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;    // (rows, heads * HEAD_SIZE)
@group(0) @binding(6) var<storage, read_write> lse: array<f32>;  // (rows, heads)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (wg.y * groups.x + wg.x) * WORKGROUP + lane;
  if (i >= p.rows * p.heads) { return; }
  let row = i / p.heads;
  let head = i % p.heads;
  let keys = min(position[0] + row % p.seq + 1u, p.kv_rows);
  let q_base = row * p.q_stride + p.q_offset + head * HEAD_SIZE;
  let kv_row = (row / p.seq) * p.kv_rows;
  let kv_column = (head / p.group) * HEAD_SIZE;

  var query: array<f32, HEAD_SIZE>;
  var sum: array<f32, HEAD_SIZE>;
  for (var d = 0u; d < HEAD_SIZE; d++) { query[d] = q[q_base + d] * p.scale; }
  var top = -3.0e38;
  var weight_sum = 0.0;
  for (var j = 0u; j < keys; j++) {
    let k_base = (kv_row + j) * p.k_stride + p.k_offset + kv_column;
    let v_base = (kv_row + j) * p.v_stride + p.v_offset + kv_column;
    var score = 0.0;
    for (var d = 0u; d < HEAD_SIZE; d++) { score += query[d] * k[k_base + d]; }
    if (score > top) {
      let shrink = exp(top - score);
      weight_sum *= shrink;
      for (var d = 0u; d < HEAD_SIZE; d++) { sum[d] *= shrink; }
      top = score;
    }
    let weight = exp(score - top);
    weight_sum += weight;
    for (var d = 0u; d < HEAD_SIZE; d++) { sum[d] += weight * v[v_base + d]; }
  }
  for (var d = 0u; d < HEAD_SIZE; d++) { y[i * HEAD_SIZE + d] = sum[d] / weight_sum; }
  lse[i] = top + log(weight_sum);
}
