// needs: WORKGROUP
// needs: tanh_of
// tanh, one invocation per float: what it is used for is small.

struct Params { size: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;       // (size)
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (size)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (i >= p.size) { return; }
  y[i] = tanh_of(x[i]);
}
