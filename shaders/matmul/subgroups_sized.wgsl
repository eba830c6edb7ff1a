// needs: LANES, make_tile
// For adapters that give a shader's subgroups 32 lanes where it asks for them.
enable subgroup_size_control;

@compute @workgroup_size(LANES) @subgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32, @builtin(subgroup_id) subgroup: u32) {
  make_tile(group, groups, lane, subgroup);
}
