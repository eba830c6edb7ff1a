// needs: WORKGROUP
// needs: row_of, start_of, STEP, row_sum, keeps
// needs: elem, LANES, total
// LayerNorm, a row to an invocation or to a workgroup.
// y = (x - mean) * rstd * weight + bias, biased variance; mean and rstd are kept for the backward pass.

struct Params { rows: u32, width: u32, eps: f32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<elem>;         // (rows, width)
@group(0) @binding(2) var<storage, read> weight: array<elem>;    // (width)
@group(0) @binding(3) var<storage, read> bias: array<elem>;      // (width)
@group(0) @binding(4) var<storage, read_write> y: array<elem>;   // (rows, width)
@group(0) @binding(5) var<storage, read_write> mean: array<f32>; // (rows)
@group(0) @binding(6) var<storage, read_write> rstd: array<f32>; // (rows)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group.y * groups.x + group.x, lane);
  if (row >= p.rows) { return; }
  let width = min(min(p.width, arrayLength(&x)), min(arrayLength(&weight), min(arrayLength(&bias), arrayLength(&y))));
  let count = f32(p.width * LANES);
  let base = row * p.width;

  var sums = elem();
  for (var c = start_of(lane); c < width; c += STEP) { sums += x[base + c]; }
  let mu = row_sum(lane, total(sums)) / count;

  // The variance from the centred values: a mean far from zero must not cancel it away.
  var squares = elem();
  for (var c = start_of(lane); c < width; c += STEP) {
    let d = x[base + c] - mu;
    squares += d * d;
  }
  let r = 1.0 / sqrt(row_sum(lane, total(squares)) / count + p.eps);

  for (var c = start_of(lane); c < width; c += STEP) {
    y[base + c] = (x[base + c] - mu) * r * weight[c] + bias[c];
  }
  if (keeps(lane)) {
    mean[row] = mu;
    rstd[row] = r;
  }
}
