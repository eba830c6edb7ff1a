// Sums of squares over blocks of BLOCK elements, one invocation per block. Eight running sums, combined in
// pairs, keep the rounding of a gradient norm below what the next steps add.

struct Params { size: u32, first: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;             // (size)
@group(0) @binding(2) var<storage, read_write> partials: array<f32>; // (first + blocks)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let block = (group.y * groups.x + group.x) * WORKGROUP + lane;
  var i = block * BLOCK;
  if (i >= p.size) { return; }
  let end = min(i + BLOCK, p.size);

  var low = vec4f();
  var high = vec4f();
  for (; i + 8u <= end; i += 8u) {
    let a = vec4f(x[i], x[i + 1u], x[i + 2u], x[i + 3u]);
    let b = vec4f(x[i + 4u], x[i + 5u], x[i + 6u], x[i + 7u]);
    low += a * a;
    high += b * b;
  }
  for (; i < end; i++) { low.x += x[i] * x[i]; }
  let sums = low + high;
  partials[p.first + block] = (sums.x + sums.y) + (sums.z + sums.w);
}
