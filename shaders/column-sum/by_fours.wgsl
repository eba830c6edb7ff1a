// needs: WORKGROUP
// needs: elem, LANES
// column_sum.wgsl for GPUs, with its bits: each of its four running sums is a lane of its own, so that there are four times as
// many of them. Lanes of one running sum lie side by side, as the columns do.

// All but rows and rowsPerBlock count elem.
struct Params { rows: u32, width: u32, stride: u32, offset: u32, rowsPerBlock: u32, accumulate: u32, into: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<elem>;       // (rows, stride), columns offset..offset+width-1
@group(0) @binding(2) var<storage, read_write> y: array<elem>; // (blocks, width) from `into` on

const ITEMS = WORKGROUP / 4u;

var<workgroup> sums: array<elem, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * ITEMS + lane % ITEMS;
  let block = item / p.width;
  let first = min(block * p.rowsPerBlock, p.rows);
  let last = min(first + p.rowsPerBlock, min(p.rows, LANES * arrayLength(&x)));
  let rest = first + ((max(first, last) - first) & ~3u); // what is left of the last four is the first sum's
  let column = p.offset + (item - block * p.width);

  var sum = elem();
  for (var row = first + lane / ITEMS; row < rest; row += 4u) { sum += x[column + row * p.stride]; }
  if (lane < ITEMS) {
    for (var row = rest; row < last; row++) { sum += x[column + row * p.stride]; }
  }
  sums[lane] = sum;
  workgroupBarrier();
  if (lane < ITEMS && first < p.rows) {
    var all = (sums[lane] + sums[lane + ITEMS]) + (sums[lane + 2u * ITEMS] + sums[lane + 3u * ITEMS]);
    if (p.accumulate != 0u) { all += y[p.into + item]; }
    y[p.into + item] = all;
  }
}
