// Sums of columns over blocks of rows, one invocation per (block, column). Four running sums, combined in
// a fixed order: a quarter of the rounding of one.

struct Params { rows: u32, width: u32, stride: u32, offset: u32, rowsPerBlock: u32, accumulate: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;       // (rows, stride), columns offset..offset+width-1
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (blocks, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let first = item / p.width * p.rowsPerBlock;
  if (first >= p.rows) { return; }
  let last = min(first + p.rowsPerBlock, p.rows);

  var sums = vec4f();
  var row = first;
  var i = p.offset + first * p.stride + item % p.width;
  for (; row + 4u <= last; row += 4u) {
    sums += vec4f(x[i], x[i + p.stride], x[i + 2u * p.stride], x[i + 3u * p.stride]);
    i += 4u * p.stride;
  }
  for (; row < last; row++) {
    sums.x += x[i];
    i += p.stride;
  }
  var total = (sums.x + sums.y) + (sums.z + sums.w);
  if (p.accumulate != 0u) { total += y[item]; }
  y[item] = total;
}
