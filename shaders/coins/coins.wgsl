// needs: WORKGROUP, splitmix32
// Floats moved up or down by the throw of a coin, one invocation per element: by a share of the value, and at least by so much. The
// coin is a hash of the stream, the index and the value's bits: another value at the same place has another one. Zero stays.

struct Params { size: u32, stream: u32, share: f32, least: f32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;       // (size)
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // (size)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (i >= p.size) { return; }
  let word = splitmix32(splitmix32(p.stream ^ i) ^ bitcast<u32>(x[i]));
  let off = select(max(p.share * abs(x[i]), p.least), 0.0, x[i] == 0.0);
  y[i] = x[i] + select(-off, off, (word & 1u) == 1u);
}
