// needs: WORKGROUP
// needs: elem
// Packed rows of some heads into packed rows of more, one invocation per elem. The columns of a row are q, k and v; those of x
// up to k_at are q, up to v_at k.

struct Params { rows: u32, x_width: u32, y_width: u32, k_at: u32, v_at: u32, q_to: u32, k_to: u32, v_to: u32 } // in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<elem>;       // (rows, x_width)
@group(0) @binding(2) var<storage, read_write> y: array<elem>; // (rows, y_width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let row = item / p.x_width;
  if (row >= p.rows) { return; }
  let c = item - row * p.x_width;
  var to = p.q_to + c;
  if (c >= p.k_at) { to = p.k_to + (c - p.k_at); }
  if (c >= p.v_at) { to = p.v_to + (c - p.v_at); }
  y[row * p.y_width + to] = x[item];
}
