// needs: WORKGROUP
// needs: elem, LANES
// Sums of columns over blocks of rows, one invocation per (block, elem). Four running sums, combined in
// a fixed order: a quarter of the rounding of one.

// All but rows and rowsPerBlock count elem.
struct Params { rows: u32, width: u32, stride: u32, offset: u32, rowsPerBlock: u32, accumulate: u32, into: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<elem>;       // (rows, stride), columns offset..offset+width-1
@group(0) @binding(2) var<storage, read_write> y: array<elem>; // (blocks, width) from `into` on

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let block = item / p.width;
  let first = block * p.rowsPerBlock;
  if (first >= p.rows) { return; }
  let last = min(first + p.rowsPerBlock, min(p.rows, LANES * arrayLength(&x)));

  var a = elem();
  var b = elem();
  var c = elem();
  var d = elem();
  var row = first;
  var i = p.offset + first * p.stride + (item - block * p.width);
  for (; row + 4u <= last; row += 4u) {
    a += x[i];
    b += x[i + p.stride];
    c += x[i + 2u * p.stride];
    d += x[i + 3u * p.stride];
    i += 4u * p.stride;
  }
  for (; row < last; row++) {
    a += x[i];
    i += p.stride;
  }
  var all = (a + b) + (c + d);
  if (p.accumulate != 0u) { all += y[p.into + item]; }
  y[p.into + item] = all;
}
