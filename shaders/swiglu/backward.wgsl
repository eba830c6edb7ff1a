// needs: WORKGROUP
// needs: elem
// SwiGLU backward, one invocation per elem. With s = 1 / (1 + exp(-gate)):
// dup = dy * gate * s, dgate = dy * up * s * (1 + gate * (1 - s)), and 1 - s = exp(-gate) * s.

struct Params { size: u32 } // size: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<elem>;          // (size)
@group(0) @binding(2) var<storage, read> gate: array<elem>;        // (size)
@group(0) @binding(3) var<storage, read> up: array<elem>;          // (size)
@group(0) @binding(4) var<storage, read_write> dgate: array<elem>; // (size)
@group(0) @binding(5) var<storage, read_write> dup: array<elem>;   // (size)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (i >= p.size) { return; }
  let g = gate[i];
  let e = exp(-clamp(g, elem(-80.0), elem(80.0)));
  let s = 1.0 / (1.0 + e);
  let d = dy[i];
  dgate[i] = d * up[i] * (s + s * (g * (e * s)));
  dup[i] = d * (g * s);
}
