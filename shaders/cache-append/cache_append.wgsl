// needs: WORKGROUP
// needs: elem
// New keys or values into a cache, one invocation per elem: cache[b][position + t] = x[b * seq + t].
// Rows past the capacity are dropped.

struct Params { batch: u32, seq: u32, width: u32, stride: u32, offset: u32, capacity: u32 } // width, stride, offset: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<elem>;           // (batch * seq, stride), from column offset
@group(0) @binding(2) var<storage, read> position: array<u32>;     // (1): of the first row
@group(0) @binding(3) var<storage, read_write> cache: array<elem>; // (batch, capacity, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let row = item / p.width;
  let c = item - row * p.width;
  if (row >= p.batch * p.seq) { return; }
  let b = row / p.seq;
  let t = position[0] + (row - b * p.seq);
  if (t >= p.capacity) { return; }
  cache[(b * p.capacity + t) * p.width + c] = x[row * p.stride + p.offset + c];
}
