// needs: WORKGROUP
// needs: elem
// Sums of columns, the rows one by one in their order, from what is there on: one invocation per elem.

struct Params { rows: u32, width: u32, accumulate: u32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<elem>;       // (rows, width)
@group(0) @binding(2) var<storage, read_write> y: array<elem>; // (width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let column = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (column >= p.width) { return; }
  let end = min(p.rows * p.width, arrayLength(&x));
  var sum = elem();
  if (p.accumulate != 0u) { sum = y[column]; }
  for (var i = column; i < end; i += p.width) { sum += x[i]; }
  y[column] = sum;
}
