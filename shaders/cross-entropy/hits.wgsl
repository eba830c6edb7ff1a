// needs: WORKGROUP
// Whether the target is told right, from the statistics of all tiles, one invocation per row: 1 where no logit is above the
// target's, else 0, and in ignored rows.

struct Params { rows: u32, ignoreIndex: i32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> maximum: array<f32>;    // (rows)
@group(0) @binding(2) var<storage, read> picked: array<f32>;     // (rows)
@group(0) @binding(3) var<storage, read> targets: array<i32>;    // (rows)
@group(0) @binding(4) var<storage, read_write> hits: array<f32>; // (rows)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (row >= p.rows) { return; }
  hits[row] = select(0.0, 1.0, targets[row] != p.ignoreIndex && picked[row] >= maximum[row]);
}
