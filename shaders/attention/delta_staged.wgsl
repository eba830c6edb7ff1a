// needs: WORKGROUP
// delta_4.wgsl for GPUs, with its bits: a workgroup fetches its heads PANEL vec4f at a time, neighbouring lanes neighbouring
// ones, and passes them through workgroup memory to the lanes that sum them. head counts vec4f.

struct Params { count: u32, head: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<vec4f>;         // (rows, heads * head)
@group(0) @binding(2) var<storage, read> y: array<vec4f>;          // (rows, heads * head)
@group(0) @binding(3) var<storage, read_write> delta: array<f32>;  // (rows, heads)

const PANEL = 4u;

// One vec4f more than a panel has: lanes that read their own rows meet in fewer memory banks.
var<workgroup> panel_dy: array<array<vec4f, PANEL + 1>, WORKGROUP>;
var<workgroup> panel_y: array<array<vec4f, PANEL + 1>, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let first = (wg.y * groups.x + wg.x) * WORKGROUP;
  if (first >= p.count) { return; }
  var sum = 0.0;
  for (var begin = 0u; begin < p.head; begin += PANEL) {
    workgroupBarrier();
    for (var n = lane; n < WORKGROUP * PANEL; n += WORKGROUP) {
      let row = n / PANEL;
      let d = begin + n % PANEL;
      if (first + row < p.count && d < p.head) {
        panel_dy[row][n % PANEL] = dy[(first + row) * p.head + d];
        panel_y[row][n % PANEL] = y[(first + row) * p.head + d];
      }
    }
    workgroupBarrier();
    for (var d = 0u; d < min(PANEL, p.head - begin); d++) {
      let a = panel_dy[lane][d];
      let b = panel_y[lane][d];
      sum = sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
    }
  }
  if (first + lane < p.count) { delta[first + lane] = sum; }
}
