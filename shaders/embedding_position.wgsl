// Token and position embedding, one invocation per elem: y = weight[id] + positionWeight[position + t].
// Ids and positions out of range read the nearest row.

struct Params { rows: u32, seq: u32, width: u32, vocabulary: u32, positions: u32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> ids: array<i32>;             // (rows)
@group(0) @binding(2) var<storage, read> position: array<u32>;        // (1): of the first row
@group(0) @binding(3) var<storage, read> weight: array<elem>;         // (vocabulary, width)
@group(0) @binding(4) var<storage, read> positionWeight: array<elem>; // (positions, width)
@group(0) @binding(5) var<storage, read_write> y: array<elem>;        // (rows, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let row = item / p.width;
  let c = item - row * p.width;
  if (row >= p.rows) { return; }
  let id = u32(clamp(ids[row], 0, i32(p.vocabulary) - 1));
  let t = min(position[0] + row % p.seq, p.positions - 1u);
  y[item] = weight[id * p.width + c] + positionWeight[t * p.width + c];
}
