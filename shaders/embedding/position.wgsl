// needs: WORKGROUP
// needs: elem
// Position embedding, one invocation per elem: y += positionWeight[position + t]. Positions past the end take the
// last row of the whole table. `positionWeight` holds `count` of its rows from `first` on; rows of y at other
// positions stay as they are.

struct Params { rows: u32, seq: u32, width: u32, positions: u32, first: u32, count: u32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> position: array<u32>;        // (1): of the first row
@group(0) @binding(2) var<storage, read> positionWeight: array<elem>; // (count, width)
@group(0) @binding(3) var<storage, read_write> y: array<elem>;        // (rows, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let row = item / p.width;
  if (row >= p.rows) { return; }
  let t = min(position[0] + row % p.seq, p.positions - 1u);
  if (t < p.first || t - p.first >= p.count) { return; }
  y[item] += positionWeight[(t - p.first) * p.width + (item - row * p.width)];
}
