// needs: WORKGROUP, narrowed
// Floats rounded to sixteen bits, two to a word, four an invocation; behind the last there are zeros.

struct Params { size: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;       // (size)
@group(0) @binding(2) var<storage, read_write> y: array<u32>; // (size / 2, rounded up)

fn float_at(i: u32) -> f32 {
  if (i >= min(p.size, arrayLength(&x))) { return 0.0; }
  return x[i];
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let first = 4u * i;
  if (first >= p.size) { return; }
  let words = narrowed(vec4f(float_at(first), float_at(first + 1u), float_at(first + 2u), float_at(first + 3u)));
  y[2u * i] = words.x;
  if (first + 2u < p.size) { y[2u * i + 1u] = words.y; }
}
