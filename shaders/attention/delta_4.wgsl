// needs: WORKGROUP
// delta = sum over the head of dy * y, one (row, head) per invocation, four floats a load. head counts vec4f.

struct Params { count: u32, head: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<vec4f>;         // (rows, heads * head)
@group(0) @binding(2) var<storage, read> y: array<vec4f>;          // (rows, heads * head)
@group(0) @binding(3) var<storage, read_write> delta: array<f32>;  // (rows, heads)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (wg.y * groups.x + wg.x) * WORKGROUP + lane;
  if (i >= p.count) { return; }
  // Asking for the lengths here spares SwiftShader four divisions in each index clamp inside the loop.
  let head = min(p.head, min(arrayLength(&dy), arrayLength(&y)));
  var sum = 0.0;
  for (var d = 0u; d < head; d++) {
    let a = dy[i * head + d];
    let b = y[i * head + d];
    sum = sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
  }
  delta[i] = sum;
}
