// needs: WORKGROUP
// needs: elem
// SwiGLU, one invocation per elem: y = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
// The clamp keeps exp from overflowing; below -80, silu is nothing (|g| * 2e-35).

struct Params { size: u32 } // size: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gate: array<elem>;    // (size)
@group(0) @binding(2) var<storage, read> up: array<elem>;      // (size)
@group(0) @binding(3) var<storage, read_write> y: array<elem>; // (size)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (i >= p.size) { return; }
  let g = gate[i];
  y[i] = g / (1.0 + exp(-clamp(g, elem(-80.0), elem(80.0)))) * up[i];
}
