// needs: WORKGROUP
// needs: elem
// Rows of each of a batch of matrices copied or added into another's, one invocation per elem. Where x has one matrix
// for all of the batch, xRows is 0.

struct Params { batch: u32, rows: u32, width: u32, x_rows: u32, x_first: u32, y_rows: u32, y_first: u32, accumulate: u32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<elem>;       // (batch, x_rows, width)
@group(0) @binding(2) var<storage, read_write> y: array<elem>; // (batch, y_rows, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let row = item / p.width;
  if (row >= p.batch * p.rows) { return; }
  let c = item - row * p.width;
  let matrix = row / p.rows;
  let r = row - matrix * p.rows;
  let to = (matrix * p.y_rows + p.y_first + r) * p.width + c;
  var value = x[(matrix * p.x_rows + p.x_first + r) * p.width + c];
  if (p.accumulate != 0u) { value += y[to]; }
  y[to] = value;
}
