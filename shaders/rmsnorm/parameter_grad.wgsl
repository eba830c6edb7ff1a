// needs: WORKGROUP, ROW_BLOCK
// needs: elem
// RMSNorm's weight gradient, summed over blocks of ROW_BLOCK rows: one invocation per (block, elem).
// dweight = sum dy * x * rstd. column_sum adds the blocks up.

struct Params { rows: u32, width: u32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<elem>;             // (rows, width)
@group(0) @binding(2) var<storage, read> x: array<elem>;              // (rows, width)
@group(0) @binding(3) var<storage, read> rstd: array<f32>;            // (rows)
@group(0) @binding(4) var<storage, read_write> partials: array<elem>; // (blocks, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let first = item / p.width * ROW_BLOCK;
  let c = item % p.width;
  if (first >= p.rows) { return; }

  let last = min(first + ROW_BLOCK, min(p.rows, arrayLength(&rstd)));

  var dweight = elem();
  for (var row = first; row < last; row++) {
    let i = row * p.width + c;
    dweight += dy[i] * (x[i] * rstd[row]);
  }
  partials[item] = dweight;
}
