// needs: WORKGROUP, ROW_BLOCK
// needs: elem
// The weight gradient of head-norm/forward.wgsl, summed over blocks of ROW_BLOCK heads: one invocation per (block, elem).
// dweight = sum dy * n. column_sum adds the blocks up.

struct Params { rows: u32, heads: u32, width: u32, stride: u32, offset: u32 } // width, stride, offset: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<elem>;             // (rows / heads, stride), heads from column offset
@group(0) @binding(2) var<storage, read> normal: array<elem>;         // (rows, width)
@group(0) @binding(3) var<storage, read_write> partials: array<elem>; // (blocks, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let first = item / p.width * ROW_BLOCK;
  let c = item % p.width;
  if (first >= p.rows) { return; }

  let last = min(first + ROW_BLOCK, min(p.rows, arrayLength(&normal)));

  var dweight = elem();
  for (var row = first; row < last; row++) {
    let token = row / p.heads;
    let base = token * p.stride + p.offset + (row - token * p.heads) * p.width;
    dweight += dy[base + c] * normal[row * p.width + c];
  }
  partials[item] = dweight;
}
