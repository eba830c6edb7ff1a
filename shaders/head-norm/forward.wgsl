// needs: WORKGROUP
// needs: row_of, start_of, STEP, row_sum, keeps
// needs: elem, total, LANES
// RMSNorm of heads in packed rows, in place, a head to an invocation or to a workgroup: n = x * rstd,
// x = n * (weight + gain), rstd = 1 / sqrt(mean(x^2) + eps). n and rstd are kept for the backward pass.

struct Params { rows: u32, heads: u32, width: u32, stride: u32, offset: u32, eps: f32, gain: f32 } // width, stride, offset: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> x: array<elem>;      // (rows / heads, stride), heads from column offset
@group(0) @binding(2) var<storage, read> weight: array<elem>;       // (width)
@group(0) @binding(3) var<storage, read_write> normal: array<elem>; // (rows, width)
@group(0) @binding(4) var<storage, read_write> rstd: array<f32>;    // (rows)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group.y * groups.x + group.x, lane);
  if (row >= p.rows) { return; }
  let width = min(min(p.width, arrayLength(&x)), min(arrayLength(&weight), arrayLength(&normal)));
  let token = row / p.heads;
  let base = token * p.stride + p.offset + (row - token * p.heads) * p.width;
  let kept = row * p.width;

  var squares = elem();
  for (var c = start_of(lane); c < width; c += STEP) { squares += x[base + c] * x[base + c]; }
  let r = 1.0 / sqrt(row_sum(lane, total(squares)) / f32(p.width * LANES) + p.eps);

  for (var c = start_of(lane); c < width; c += STEP) {
    let n = x[base + c] * r;
    normal[kept + c] = n;
    x[base + c] = n * (weight[c] + p.gain);
  }
  if (keeps(lane)) { rstd[row] = r; }
}
