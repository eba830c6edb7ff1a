// needs: WORKGROUP
// needs: stays
// gives: p, key
// Dropout in place, one invocation per element. x has the columns from `first` on of rows of `whole`.

struct Params { size: u32, stream: u32, threshold: u32, scale: f32, columns: u32, whole: u32, first: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> key: array<u32>;     // (2)
@group(0) @binding(2) var<storage, read_write> x: array<f32>; // (size)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (i >= p.size) { return; }
  let at = i / p.columns * p.whole + p.first + i % p.columns;
  x[i] = select(0.0, p.scale * x[i], stays(at));
}
