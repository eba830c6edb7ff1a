// needs: WORKGROUP, BLOCK
// needs: elem, LANES, total, x_size, taken
// sum_squares.wgsl for GPUs, with its bits: each of its eight running sums is a lane of its own, so that those of a block read a whole
// line of memory at once, and there are eight times as many of them.

struct Params { size: u32, first: u32 } // size: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read_write> partials: array<f32>; // (first + blocks)

const SUMS = 8u;

var<workgroup> sums: array<elem, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let block = (group.y * groups.x + group.x) * (WORKGROUP / SUMS) + lane / SUMS;
  let size = min(p.size, x_size());
  let begin = min(block * (BLOCK / LANES), size);
  let end = min(begin + BLOCK / LANES, size);
  let rest = begin + ((end - begin) & ~(SUMS - 1u)); // what is left of the last eight is the first lane's

  var sum = elem();
  for (var i = begin + lane % SUMS; i < rest; i += SUMS) { let x = taken(i); sum += x * x; }
  if (lane % SUMS == 0u) {
    for (var i = rest; i < end; i++) { let x = taken(i); sum += x * x; }
  }
  sums[lane] = sum;
  workgroupBarrier();
  if (lane % SUMS == 0u && begin < end) {
    let low = (sums[lane] + sums[lane + 1u]) + (sums[lane + 2u] + sums[lane + 3u]);
    let high = (sums[lane + 4u] + sums[lane + 5u]) + (sums[lane + 6u] + sums[lane + 7u]);
    partials[p.first + block] = total(low + high);
  }
}
