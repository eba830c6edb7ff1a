// needs: WORKGROUP
// needs: elem
// Position embedding backward, one invocation per elem of dweight: row t is the sum of dy over the batch,
// added to the old value when accumulate is set. Rows past seq saw no input: zero, or unchanged.
// `dweight` holds `count` rows of the table from `first` on.

struct Params { batch: u32, seq: u32, width: u32, first: u32, count: u32, accumulate: u32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<elem>;            // (batch, seq, width)
@group(0) @binding(2) var<storage, read_write> dweight: array<elem>; // (count, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (item >= p.count * p.width) { return; }
  let place = p.first * p.width + item; // of this elem in the whole table

  var sum = elem();
  if (place < p.seq * p.width) {
    for (var b = 0u; b < p.batch; b++) { sum += dy[b * p.seq * p.width + place]; }
  }
  if (p.accumulate != 0u) { sum += dweight[item]; }
  dweight[item] = sum;
}
