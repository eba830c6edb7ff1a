// dk and dv of causal attention, one key of one kv head per invocation, over the queries that see it and,
// with grouped heads, over the query heads of the group: always in the same order, so no atomics.

struct Params {
  rows: u32, seq: u32, heads: u32, group: u32,
  stride: u32, q_offset: u32, k_offset: u32, v_offset: u32, scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;          // (rows, stride)
@group(0) @binding(2) var<storage, read> dy: array<f32>;           // (rows, heads * HEAD_SIZE)
@group(0) @binding(3) var<storage, read> lse: array<f32>;          // (rows, heads)
@group(0) @binding(4) var<storage, read> delta: array<f32>;        // (rows, heads)
@group(0) @binding(5) var<storage, read_write> dqkv: array<f32>;   // (rows, stride), the k and v columns

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let kv_heads = p.heads / p.group;
  let i = (wg.y * groups.x + wg.x) * WORKGROUP + lane;
  if (i >= p.rows * kv_heads) { return; }
  let row = i / kv_heads;
  let kv_head = i % kv_heads;
  let end = (row / p.seq + 1u) * p.seq;
  let k_base = row * p.stride + p.k_offset + kv_head * HEAD_SIZE;
  let v_base = row * p.stride + p.v_offset + kv_head * HEAD_SIZE;

  var key: array<f32, HEAD_SIZE>;
  var value: array<f32, HEAD_SIZE>;
  var dk: array<f32, HEAD_SIZE>;
  var dv: array<f32, HEAD_SIZE>;
  for (var d = 0u; d < HEAD_SIZE; d++) {
    key[d] = qkv[k_base + d];
    value[d] = qkv[v_base + d];
  }
  for (var head = kv_head * p.group; head < (kv_head + 1u) * p.group; head++) {
    for (var query = row; query < end; query++) {
      let q_base = query * p.stride + p.q_offset + head * HEAD_SIZE;
      let dy_base = (query * p.heads + head) * HEAD_SIZE;
      var score = 0.0;
      var dw = 0.0;
      for (var d = 0u; d < HEAD_SIZE; d++) {
        score += qkv[q_base + d] * p.scale * key[d];
        dw += dy[dy_base + d] * value[d];
      }
      let w = exp(score - lse[query * p.heads + head]);
      let ds = w * (dw - delta[query * p.heads + head]) * p.scale;
      for (var d = 0u; d < HEAD_SIZE; d++) {
        dk[d] += ds * qkv[q_base + d];
        dv[d] += w * dy[dy_base + d];
      }
    }
  }
  for (var d = 0u; d < HEAD_SIZE; d++) {
    dqkv[k_base + d] = dk[d];
    dqkv[v_base + d] = dv[d];
  }
}
