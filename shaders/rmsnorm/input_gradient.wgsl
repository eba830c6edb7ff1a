// needs: row_of, start_of, STEP, row_sum
// needs: elem, LANES, total
// needs: p
// gives: input_gradient, dy, x, rstd
// The gradient of an RMSNorm's input, of the rows of one workgroup.
// With n = x * rstd and g = dy * (weight + gain): dx = rstd * (g - n * mean(g * n)), added to the old dx when accumulate is set.

@group(0) @binding(1) var<storage, read> dy: array<elem>;       // (rows, width)
@group(0) @binding(2) var<storage, read> x: array<elem>;        // (rows, width)
@group(0) @binding(3) var<storage, read> weight: array<elem>;   // (width)
@group(0) @binding(4) var<storage, read> rstd: array<f32>;      // (rows)
@group(0) @binding(5) var<storage, read_write> dx: array<elem>; // (rows, width)

fn input_gradient(group: u32, lane: u32) {
  // Lanes of a row that is not there go along with those of others.
  let own = row_of(group, lane);
  let row = min(own, p.rows - 1u);
  let inside = min(min(p.width, arrayLength(&weight)), min(arrayLength(&x), min(arrayLength(&dy), arrayLength(&dx))));
  let width = select(0u, inside, own < p.rows);
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
