// needs: WORKGROUP
// How fast an adapter moves memory: 16 bytes an invocation, from one buffer to another.

struct Params { count: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4f>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4f>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (wg.y * groups.x + wg.x) * WORKGROUP + lane;
  if (i < p.count) { y[i] = x[i]; }
}
