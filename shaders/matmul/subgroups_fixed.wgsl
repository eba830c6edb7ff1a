// needs: LANES, make_tile
// For adapters whose subgroups all have 32 lanes.

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32, @builtin(subgroup_id) subgroup: u32) {
  make_tile(group, groups, lane, subgroup);
}
