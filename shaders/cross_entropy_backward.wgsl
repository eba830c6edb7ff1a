// Cross-entropy backward over one tile of the vocabulary, in place, one invocation per element:
// dlogit = (exp(logit - lse) - [column is the target]) * scale, 0 in ignored rows.

struct Params { rows: u32, tile: u32, first: u32, ignoreIndex: i32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> lse: array<f32>;          // (rows, 2): maximum, log(sum)
@group(0) @binding(2) var<storage, read> targets: array<i32>;      // (rows)
@group(0) @binding(3) var<storage, read> scale: array<f32>;        // (1)
@group(0) @binding(4) var<storage, read_write> logits: array<f32>; // (rows, tile)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let row = item / p.tile;
  if (row >= p.rows) { return; }

  var d = 0.0;
  if (targets[row] != p.ignoreIndex) {
    d = exp((logits[item] - lse[2u * row]) - lse[2u * row + 1u]);
    if (targets[row] == i32(p.first + item % p.tile)) { d -= 1.0; }
    d *= scale[0];
  }
  logits[item] = d;
}
