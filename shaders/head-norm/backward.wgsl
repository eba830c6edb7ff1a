// needs: WORKGROUP
// needs: row_of, start_of, STEP, row_sum
// needs: elem, LANES, total
// The backward pass of head-norm/forward.wgsl to its input, in place: the gradient of the output becomes that of the
// input. With n as it was kept and g = dx * (weight + gain): dx = rstd * (g - n * mean(g * n)).

struct Params { rows: u32, heads: u32, width: u32, stride: u32, offset: u32, gain: f32 } // width, stride, offset: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> normal: array<elem>;   // (rows, width)
@group(0) @binding(2) var<storage, read> weight: array<elem>;   // (width)
@group(0) @binding(3) var<storage, read> rstd: array<f32>;      // (rows)
@group(0) @binding(4) var<storage, read_write> dx: array<elem>; // (rows / heads, stride), heads from column offset

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group.y * groups.x + group.x, lane);
  if (row >= p.rows) { return; }
  let width = min(min(p.width, arrayLength(&weight)), min(arrayLength(&normal), arrayLength(&dx)));
  let token = row / p.heads;
  let base = token * p.stride + p.offset + (row - token * p.heads) * p.width;
  let kept = row * p.width;
  let r = rstd[row];

  var alongs = elem();
  for (var c = start_of(lane); c < width; c += STEP) { alongs += dx[base + c] * (weight[c] + p.gain) * normal[kept + c]; }
  let along = row_sum(lane, total(alongs)) / f32(p.width * LANES);

  for (var c = start_of(lane); c < width; c += STEP) {
    dx[base + c] = r * (dx[base + c] * (weight[c] + p.gain) - normal[kept + c] * along);
  }
}
