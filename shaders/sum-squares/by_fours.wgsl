// needs: WORKGROUP, BLOCK
// needs: elem, LANES, total, x_size, taken
// sum_squares.wgsl for GPUs, with its bits: each of its four running sums is a lane of its own, so that neighbouring lanes
// read neighbouring elem and there are four times as many of them.

struct Params { size: u32, first: u32 } // size: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read_write> partials: array<f32>; // (first + blocks)

var<workgroup> sums: array<elem, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let block = (group.y * groups.x + group.x) * (WORKGROUP / 4u) + lane / 4u;
  let size = min(p.size, x_size());
  let begin = min(block * (BLOCK / LANES), size);
  let end = min(begin + BLOCK / LANES, size);
  let rest = begin + ((end - begin) & ~3u); // what is left of the last four is the first lane's

  var sum = elem();
  for (var i = begin + lane % 4u; i < rest; i += 4u) { let x = taken(i); sum += x * x; }
  if (lane % 4u == 0u) {
    for (var i = rest; i < end; i++) { let x = taken(i); sum += x * x; }
  }
  sums[lane] = sum;
  workgroupBarrier();
  if (lane % 4u == 0u && begin < end) {
    partials[p.first + block] = total((sums[lane] + sums[lane + 1u]) + (sums[lane + 2u] + sums[lane + 3u]));
  }
}
