// needs: WORKGROUP
// needs: elem
// needs: activated
// The middle of a gated MLP backward, in place, one invocation per elem: gate becomes dgate = dy * up * activation'(gate),
// dy becomes dup = dy * activation(gate).

struct Params { size: u32 } // size: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> up: array<elem>;          // (size)
@group(0) @binding(2) var<storage, read_write> dgate: array<elem>; // (size), gate before
@group(0) @binding(3) var<storage, read_write> dup: array<elem>;   // (size), dy before

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (i >= p.size) { return; }
  let gated = activated(dgate[i]);
  let d = dup[i];
  dgate[i] = d * up[i] * gated.slope;
  dup[i] = d * gated.value;
}
