// needs: WORKGROUP
// needs: input_gradient, sum_columns
// needs: elem, dy, x, rstd
// gives: p, OUTPUTS, terms_of, rows_to_sum, sum_so_far, keep_sum
// RMSNorm backward, to its input and to its weight in one dispatch, as layernorm/gradients.wgsl.
// With n = x * rstd: dweight = sum dy * n.

struct Params {
  rows: u32, width: u32, column_groups: u32, by_block: u32, // width: in elem
  accumulate: u32, accumulate_weight: u32, gain: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(6) var<storage, read_write> dweight: array<elem>; // (width), or (blocks, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let index = group.y * groups.x + group.x;
  if (index < p.column_groups) { sum_columns(index, lane); } else { input_gradient(index - p.column_groups, lane); }
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
