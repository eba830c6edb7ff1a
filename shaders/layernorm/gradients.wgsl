// needs: WORKGROUP
// needs: row_of, start_of, STEP, row_sum, sum_columns
// needs: elem, LANES, total
// gives: p, OUTPUTS, terms_of, rows_to_sum, sum_so_far, keep_sum
// LayerNorm backward, to its input and to its parameters in one dispatch: the first column_groups workgroups sum columns over all
// rows, which takes longest, the others have rows of dx.
// With n = (x - mean) * rstd and g = dy * weight: dx = rstd * (g - mean(g) - n * mean(g * n)), dweight = sum dy * n, dbias = sum dy,
// each added to what was there where its accumulate is set. Where by_block is, the sum of each block of rows is kept by itself.

struct Params {
  rows: u32, width: u32, column_groups: u32, by_block: u32, // width: in elem
  accumulate: u32, accumulate_weight: u32, accumulate_bias: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<elem>;            // (rows, width)
@group(0) @binding(2) var<storage, read> x: array<elem>;             // (rows, width)
@group(0) @binding(3) var<storage, read> weight: array<elem>;        // (width)
@group(0) @binding(4) var<storage, read> mean: array<f32>;           // (rows)
@group(0) @binding(5) var<storage, read> rstd: array<f32>;           // (rows)
@group(0) @binding(6) var<storage, read_write> dx: array<elem>;      // (rows, width)
@group(0) @binding(7) var<storage, read_write> dweight: array<elem>; // (width), or (blocks, width)
@group(0) @binding(8) var<storage, read_write> dbias: array<elem>;   // likewise

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let index = group.y * groups.x + group.x;
  if (index < p.column_groups) { sum_columns(index, lane); } else { input_gradient(index - p.column_groups, lane); }
}

fn input_gradient(group: u32, lane: u32) {
  // Lanes of a row that is not there go along with those of others.
  let own = row_of(group, lane);
  let row = min(own, p.rows - 1u);
  let inside = min(min(p.width, arrayLength(&weight)), min(arrayLength(&x), min(arrayLength(&dy), arrayLength(&dx))));
  let width = select(0u, inside, own < p.rows);
  let count = f32(p.width * LANES);
  let base = row * p.width;
  let mu = mean[row];
  let r = rstd[row];

  var sums = elem();
  var alongs = elem();
  for (var c = start_of(lane); c < width; c += STEP) {
    let g = dy[base + c] * weight[c];
    sums += g;
    alongs += g * ((x[base + c] - mu) * r);
  }
  let sum = row_sum(lane, total(sums)) / count;
  let along = row_sum(lane, total(alongs)) / count;

  for (var c = start_of(lane); c < width; c += STEP) {
    let g = dy[base + c] * weight[c];
    var d = r * (g - sum - (x[base + c] - mu) * r * along);
    if (p.accumulate != 0u) { d += dx[base + c]; }
    dx[base + c] = d;
  }
}

// What a row adds to a column of dweight and of dbias.
const OUTPUTS = 2u;
struct Terms { first: elem, last: elem }

fn rows_to_sum() -> u32 { return min(min(p.rows, min(arrayLength(&mean), arrayLength(&rstd))), min(arrayLength(&x), arrayLength(&dy))); }

fn terms_of(row: u32, column: u32) -> Terms {
  let i = row * p.width + column;
  let d = dy[i];
  return Terms(d * ((x[i] - mean[row]) * rstd[row]), d);
}

fn sum_so_far(output: u32, column: u32) -> elem {
  if (output == 0u) { return select(elem(), dweight[column], p.accumulate_weight != 0u); }
  return select(elem(), dbias[column], p.accumulate_bias != 0u);
}

fn keep_sum(output: u32, at: u32, sum: elem) { if (output == 0u) { dweight[at] = sum; } else { dbias[at] = sum; } }
