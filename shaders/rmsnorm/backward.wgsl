// needs: WORKGROUP
// needs: input_gradient
// gives: p
// RMSNorm backward to its input alone, a row to an invocation or to a workgroup.

struct Params { rows: u32, width: u32, accumulate: u32, gain: f32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  input_gradient(group.y * groups.x + group.x, lane);
}
