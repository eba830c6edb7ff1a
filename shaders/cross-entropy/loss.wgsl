// needs: WORKGROUP
// The loss of each row from the statistics of all tiles, one invocation per row: loss = lse - picked, 0 in
// ignored rows. lse = maximum + log(sum) is kept as its two terms: rounded to one f32, an lse of 137 would
// cost every probability a relative error of 8e-6.

struct Params { rows: u32, ignoreIndex: i32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> maximum: array<f32>;    // (rows)
@group(0) @binding(2) var<storage, read> sum: array<f32>;        // (rows), at least 1
@group(0) @binding(3) var<storage, read> picked: array<f32>;     // (rows)
@group(0) @binding(4) var<storage, read> targets: array<i32>;    // (rows)
@group(0) @binding(5) var<storage, read_write> loss: array<f32>; // (rows)
@group(0) @binding(6) var<storage, read_write> lse: array<f32>;  // (rows, 2): maximum, log(sum)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (row >= p.rows) { return; }
  let log_sum = log(sum[row]);
  lse[2u * row] = maximum[row];
  lse[2u * row + 1u] = log_sum;
  if (targets[row] == p.ignoreIndex) {
    loss[row] = 0.0;
  } else {
    loss[row] = (maximum[row] - picked[row]) + log_sum;
  }
}
