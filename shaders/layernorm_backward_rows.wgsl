// LayerNorm backward to its input, one row per invocation. With n = (x - mean) * rstd and g = dy * weight:
// dx = rstd * (g - mean(g) - n * mean(g * n)), added to the old dx when accumulate is set.

struct Params { rows: u32, width: u32, accumulate: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<f32>;       // (rows, width)
@group(0) @binding(2) var<storage, read> x: array<f32>;        // (rows, width)
@group(0) @binding(3) var<storage, read> weight: array<f32>;   // (width)
@group(0) @binding(4) var<storage, read> mean: array<f32>;     // (rows)
@group(0) @binding(5) var<storage, read> rstd: array<f32>;     // (rows)
@group(0) @binding(6) var<storage, read_write> dx: array<f32>; // (rows, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (row >= p.rows) { return; }
  let base = row * p.width;
  let mu = mean[row];
  let r = rstd[row];

  var sum = 0.0;
  var along = 0.0;
  for (var c = 0u; c < p.width; c++) {
    let g = dy[base + c] * weight[c];
    sum += g;
    along += g * ((x[base + c] - mu) * r);
  }
  sum /= f32(p.width);
  along /= f32(p.width);

  for (var c = 0u; c < p.width; c++) {
    let g = dy[base + c] * weight[c];
    var d = r * (g - sum - (x[base + c] - mu) * r * along);
    if (p.accumulate != 0u) { d += dx[base + c]; }
    dx[base + c] = d;
  }
}
