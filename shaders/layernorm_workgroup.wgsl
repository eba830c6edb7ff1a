// LayerNorm, one row per workgroup: what real GPUs like. Appended: group_reduce.wgsl.
// y = (x - mean) * rstd * weight + bias, biased variance; mean and rstd are kept for the backward pass.

struct Params { rows: u32, width: u32, eps: f32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;          // (rows, width)
@group(0) @binding(2) var<storage, read> weight: array<f32>;     // (width)
@group(0) @binding(3) var<storage, read> bias: array<f32>;       // (width)
@group(0) @binding(4) var<storage, read_write> y: array<f32>;    // (rows, width)
@group(0) @binding(5) var<storage, read_write> mean: array<f32>; // (rows)
@group(0) @binding(6) var<storage, read_write> rstd: array<f32>; // (rows)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = group.y * groups.x + group.x;
  if (row >= p.rows) { return; }
  let base = row * p.width;

  var sum = 0.0;
  for (var c = lane; c < p.width; c += WORKGROUP) { sum += x[base + c]; }
  let mu = group_sum(lane, sum) / f32(p.width);

  // The variance from the centred values: a mean far from zero must not cancel it away.
  var squares = 0.0;
  for (var c = lane; c < p.width; c += WORKGROUP) {
    let d = x[base + c] - mu;
    squares += d * d;
  }
  let r = 1.0 / sqrt(group_sum(lane, squares) / f32(p.width) + p.eps);

  for (var c = lane; c < p.width; c += WORKGROUP) {
    y[base + c] = (x[base + c] - mu) * r * weight[c] + bias[c];
  }
  if (lane == 0u) {
    mean[row] = mu;
    rstd[row] = r;
  }
}
