// needs: WORKGROUP
// needs: elem
// A tensor copied, one invocation per elem: y = x.

struct Params { size: u32 } // size: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<elem>;       // (size)
@group(0) @binding(2) var<storage, read_write> y: array<elem>; // (size)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (i >= p.size) { return; }
  y[i] = x[i];
}
