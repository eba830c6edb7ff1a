// needs: WORKGROUP
// needs: row_of, start_of, STEP, row_sum
// needs: elem, LANES, total
// RMSNorm backward to its input, a row to an invocation or to a workgroup.
// With n = x * rstd and g = dy * (weight + gain): dx = rstd * (g - n * mean(g * n)), added to the old dx when
// accumulate is set.

struct Params { rows: u32, width: u32, accumulate: u32, gain: f32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<elem>;       // (rows, width)
@group(0) @binding(2) var<storage, read> x: array<elem>;        // (rows, width)
@group(0) @binding(3) var<storage, read> weight: array<elem>;   // (width)
@group(0) @binding(4) var<storage, read> rstd: array<f32>;      // (rows)
@group(0) @binding(5) var<storage, read_write> dx: array<elem>; // (rows, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group.y * groups.x + group.x, lane);
  if (row >= p.rows) { return; }
  let width = min(min(p.width, arrayLength(&weight)), min(arrayLength(&x), min(arrayLength(&dy), arrayLength(&dx))));
  let count = f32(p.width * LANES);
  let base = row * p.width;
  let r = rstd[row];

  var alongs = elem();
  for (var c = start_of(lane); c < width; c += STEP) { alongs += dy[base + c] * (weight[c] + p.gain) * (x[base + c] * r); }
  let along = row_sum(lane, total(alongs)) / count;

  for (var c = start_of(lane); c < width; c += STEP) {
    var d = r * (dy[base + c] * (weight[c] + p.gain) - x[base + c] * r * along);
    if (p.accumulate != 0u) { d += dx[base + c]; }
    dx[base + c] = d;
  }
}
