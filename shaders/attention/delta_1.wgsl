// needs: WORKGROUP
// delta = sum over the head of dy * y: the row term of the softmax gradient, one (row, head) per invocation.

struct Params { count: u32, head: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<f32>;           // (rows, heads * head)
@group(0) @binding(2) var<storage, read> y: array<f32>;            // (rows, heads * head)
@group(0) @binding(3) var<storage, read_write> delta: array<f32>;  // (rows, heads)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (wg.y * groups.x + wg.x) * WORKGROUP + lane;
  if (i >= p.count) { return; }
  var sum = 0.0;
  for (var d = i * p.head; d < (i + 1u) * p.head; d++) { sum += dy[d] * y[d]; }
  delta[i] = sum;
}
