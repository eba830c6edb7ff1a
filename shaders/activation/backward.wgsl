// needs: WORKGROUP
// needs: elem
// needs: activation_derivative
// The backward pass of an activation by itself, in place, one invocation per elem: dy becomes dx = dy * activation'(x).

struct Params { size: u32 } // size: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<elem>;        // (size)
@group(0) @binding(2) var<storage, read_write> dx: array<elem>; // (size), dy before

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (i >= p.size) { return; }
  dx[i] = dx[i] * activation_derivative(x[i]);
}
