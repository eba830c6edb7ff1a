// needs: WORKGROUP
// needs: row_of, start_of, STEP, row_sum, sum_columns
// needs: elem, LANES, total
// gives: p, OUTPUTS, terms_of, rows_to_sum, sum_so_far, keep_sum
// RMSNorm backward, to its input and to its weight in one dispatch, as layernorm/gradients.wgsl.
// With n = x * rstd and g = dy * (weight + gain): dx = rstd * (g - n * mean(g * n)), dweight = sum dy * n.

struct Params {
  rows: u32, width: u32, column_groups: u32, by_block: u32, // width: in elem
  accumulate: u32, accumulate_weight: u32, gain: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<elem>;            // (rows, width)
@group(0) @binding(2) var<storage, read> x: array<elem>;             // (rows, width)
@group(0) @binding(3) var<storage, read> weight: array<elem>;        // (width)
@group(0) @binding(4) var<storage, read> rstd: array<f32>;           // (rows)
@group(0) @binding(5) var<storage, read_write> dx: array<elem>;      // (rows, width)
@group(0) @binding(6) var<storage, read_write> dweight: array<elem>; // (width), or (blocks, width)

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

// What a row adds to a column of dweight.
const OUTPUTS = 1u;
struct Terms { first: elem, last: elem }

fn rows_to_sum() -> u32 { return min(min(p.rows, arrayLength(&rstd)), min(arrayLength(&x), arrayLength(&dy))); }

fn terms_of(row: u32, column: u32) -> Terms {
  let i = row * p.width + column;
  return Terms(dy[i] * (x[i] * rstd[row]), elem());
}

fn sum_so_far(output: u32, column: u32) -> elem { return select(elem(), dweight[column], p.accumulate_weight != 0u); }
fn keep_sum(output: u32, at: u32, sum: elem) { dweight[at] = sum; }
