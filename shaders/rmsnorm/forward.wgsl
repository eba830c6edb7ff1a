// needs: WORKGROUP
// needs: row_of, start_of, STEP, row_sum, keeps
// needs: elem, total, LANES
// RMSNorm, a row to an invocation or to a workgroup: y = x * rstd * (weight + gain),
// rstd = 1 / sqrt(mean(x^2) + eps), kept for the backward pass.

struct Params { rows: u32, width: u32, eps: f32, gain: f32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<elem>;         // (rows, width)
@group(0) @binding(2) var<storage, read> weight: array<elem>;    // (width)
@group(0) @binding(3) var<storage, read_write> y: array<elem>;   // (rows, width)
@group(0) @binding(4) var<storage, read_write> rstd: array<f32>; // (rows)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group.y * groups.x + group.x, lane);
  if (row >= p.rows) { return; }
  let width = min(min(p.width, arrayLength(&x)), min(arrayLength(&weight), arrayLength(&y)));
  let base = row * p.width;

  var squares = elem();
  for (var c = start_of(lane); c < width; c += STEP) { squares += x[base + c] * x[base + c]; }
  let r = 1.0 / sqrt(row_sum(lane, total(squares)) / f32(p.width * LANES) + p.eps);

  for (var c = start_of(lane); c < width; c += STEP) { y[base + c] = x[base + c] * r * (weight[c] + p.gain); }
  if (keeps(lane)) { rstd[row] = r; }
}
