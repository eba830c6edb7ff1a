// needs: WORKGROUP
// needs: input_gradient, sum_columns
// needs: elem, dy, x, mean, rstd
// gives: p, OUTPUTS, terms_of, rows_to_sum, sum_so_far, keep_sum
// LayerNorm backward, to its input and to its parameters in one dispatch: the first column_groups workgroups sum columns over all
// rows, which takes longest, the others have rows of dx.
// With n = (x - mean) * rstd: dweight = sum dy * n, dbias = sum dy, each added to what was there where its accumulate is set.
// Where by_block is, the sum of each block of rows is kept by itself.

struct Params {
  rows: u32, width: u32, column_groups: u32, by_block: u32, // width: in elem
  accumulate: u32, accumulate_weight: u32, accumulate_bias: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(7) var<storage, read_write> dweight: array<elem>; // (width), or (blocks, width)
@group(0) @binding(8) var<storage, read_write> dbias: array<elem>;   // likewise

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let index = group.y * groups.x + group.x;
  if (index < p.column_groups) { sum_columns(index, lane); } else { input_gradient(index - p.column_groups, lane); }
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
