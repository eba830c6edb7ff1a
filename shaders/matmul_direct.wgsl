// One element per invocation (placeholder until the register-blocked one lands).

struct Params {
  M: u32, N: u32, K: u32, a_m: u32, a_k: u32, b_k: u32, b_n: u32, c_m: u32,
  a0: u32, b0: u32, c0: u32, accumulate: u32, scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (wg.y * groups.x + wg.x) * WORKGROUP + lane;
  if (i >= p.M * p.N) { return; }
  let row = i / p.N;
  let column = i % p.N;
  var sum = initial(row, column);
  for (var k = 0u; k < p.K; k++) { sum += a[p.a0 + row * p.a_m + k * p.a_k] * b[p.b0 + k * p.b_k + column * p.b_n]; }
  store(row, column, sum);
}
