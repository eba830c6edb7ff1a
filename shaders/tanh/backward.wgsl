// needs: WORKGROUP
// needs: elem
// tanh backward, in place, one invocation per elem: dy becomes dx = dy * (1 - y^2), as a product, which keeps its accuracy where
// |y| is near 1.

struct Params { size: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> y: array<elem>;        // (size)
@group(0) @binding(2) var<storage, read_write> dx: array<elem>; // (size), dy before

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (i >= p.size) { return; }
  dx[i] = dx[i] * ((1.0 - y[i]) * (1.0 + y[i]));
}
