// needs: WORKGROUP
// needs: elem
// Token embedding, one invocation per elem: y = scale * weight[id]. Ids out of range read the nearest row of the whole
// vocabulary. `weight` holds `count` of its rows from `first` on; ids of other rows leave y as it is.

struct Params { rows: u32, width: u32, vocabulary: u32, first: u32, count: u32, scale: f32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> ids: array<i32>;      // (rows)
@group(0) @binding(2) var<storage, read> weight: array<elem>;  // (count, width)
@group(0) @binding(3) var<storage, read_write> y: array<elem>; // (rows, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let row = item / p.width;
  if (row >= p.rows) { return; }
  let id = u32(clamp(ids[row], 0, i32(p.vocabulary) - 1));
  if (id < p.first || id - p.first >= p.count) { return; }
  y[item] = weight[(id - p.first) * p.width + (item - row * p.width)] * p.scale;
}
