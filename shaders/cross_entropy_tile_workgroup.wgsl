// One tile of the vocabulary enters the softmax statistics of its rows, one row per workgroup: the running
// maximum, the running sum of exp(logit - maximum), the target's logit when it lies in this tile.
// Appended: group_reduce.wgsl.

struct Params { rows: u32, tile: u32, first: u32, begin: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;        // (rows, tile)
@group(0) @binding(2) var<storage, read> targets: array<i32>;       // (rows)
@group(0) @binding(3) var<storage, read_write> maximum: array<f32>; // (rows)
@group(0) @binding(4) var<storage, read_write> sum: array<f32>;     // (rows): of exp(logit - maximum)
@group(0) @binding(5) var<storage, read_write> picked: array<f32>;  // (rows): the logit of the target

const LOWEST = -3.4e38;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = group.y * groups.x + group.x;
  if (row >= p.rows) { return; }
  let base = row * p.tile;

  var own = LOWEST;
  for (var c = lane; c < p.tile; c += WORKGROUP) { own = max(own, logits[base + c]); }
  var top = group_max(lane, own);
  if (p.begin == 0u) { top = max(top, maximum[row]); }

  var part = 0.0;
  for (var c = lane; c < p.tile; c += WORKGROUP) { part += exp(logits[base + c] - top); }
  var total = group_sum(lane, part);
  if (lane != 0u) { return; }

  if (p.begin == 0u) { total += sum[row] * exp(maximum[row] - top); }
  maximum[row] = top;
  sum[row] = total;

  let c = targets[row] - i32(p.first);
  if (c >= 0 && c < i32(p.tile)) {
    picked[row] = logits[base + u32(c)];
  } else if (p.begin != 0u) {
    picked[row] = 0.0;
  }
}
