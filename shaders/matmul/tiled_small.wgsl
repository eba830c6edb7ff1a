// needs: A_ALONG_M, B_ALONG_K
// needs: place_a, place_b, load_a, load_b
// needs: p, initial
// needs: total_panels, store_totals
// needs: store
// gives: panel_a, panel_b, QUARTERS, STEPS, DEPTH
// tiled.wgsl in tiles of 32 x 32, 4 x 4 elements to a lane: half as many multiply-adds for each value read, four times as many
// workgroups. For products that would leave most of a GPU idle. A panel is 32 steps of k, of which a lane fetches a block of
// 4 x 4 of either side.

const TILE = 32u;
const DEPTH = 32u;
const QUARTERS = TILE / 4u;
const STEPS = 4u;  // of k at a time

var<workgroup> panel_a: array<array<array<vec4f, QUARTERS + 1>, STEPS>, DEPTH / STEPS>;  // (k / STEPS, k % STEPS, row / 4)
var<workgroup> panel_b: array<array<array<vec4f, QUARTERS + 1>, STEPS>, DEPTH / STEPS>;  // (k / STEPS, k % STEPS, column / 4)

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let across = (p.N + TILE - 1u) / TILE;
  let tile = group.y * groups.x + group.x;
  let tile_row = TILE * (tile / across);
  let tile_column = TILE * (tile % across);
  if (tile_row >= p.M) { return; }
  let high = lane / 8u;
  let low = lane % 8u;
  let at_y = min(high, 7u);
  let at_x = min(low, 7u);
  let row = tile_row + 4u * high;
  let column = tile_column + 4u * low;

  // The block that this lane fetches, neighbours along the side that is contiguous in memory.
  let place_in_a = select(high, low, A_ALONG_M != 0u);
  let depth_in_a = select(low, high, A_ALONG_M != 0u);
  let place_in_b = select(low, high, B_ALONG_K != 0u);
  let depth_in_b = select(high, low, B_ALONG_K != 0u);
  let at_a = place_a(tile_row + 4u * place_in_a);
  let at_b = place_b(tile_column + 4u * place_in_b);

  var sums: array<vec4f, 4>;
  for (var i = select(0u, 4u, p.accumulate != 0u); i > 0u; i--) {
    for (var j = 0u; j < 4u; j++) { sums[i - 1u][j] = initial(min(row + i - 1u, p.M - 1u), min(column + j, p.N - 1u)); }
  }
  var c = sums;  // which no variable indexes: registers, then
  for (var start = 0u; start < p.K; start += DEPTH) {
    // Steps past K become zeros on both sides.
    let k_a = start + 4u * depth_in_a;
    let k_b = start + 4u * depth_in_b;
    var block_a = mat4x4f();
    var block_b = mat4x4f();
    if (k_a < p.K) { block_a = transpose(load_a(at_a, k_a)); }
    if (k_b < p.K) { block_b = transpose(load_b(at_b, k_b)); }
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
      panel_a[depth_in_a][i][place_in_a] = block_a[i];
      panel_b[depth_in_b][i][place_in_b] = block_b[i];
    }
    workgroupBarrier();
    total_panels(start, lane, tile_row, tile_column);
    // Bounds that a compiler sees, as in tiled.wgsl.
    for (var k = 0u; k < DEPTH / STEPS; k++) {
      let g = min(k, DEPTH / STEPS - 1u);
      add_step(&c, panel_a[g][0][at_y], panel_b[g][0][at_x]);
      add_step(&c, panel_a[g][1][at_y], panel_b[g][1][at_x]);
      add_step(&c, panel_a[g][2][at_y], panel_b[g][2][at_x]);
      add_step(&c, panel_a[g][3][at_y], panel_b[g][3][at_x]);
    }
  }
  store_totals(lane, tile_row, tile_column);
  sums = c;
  let width = min(max(column, p.N) - column, 4u);
  for (var i = 0u; i < 4u; i++) {
    let values = sums[i];
    for (var j = 0u; j < select(0u, width, row + i < p.M); j++) { store(row + i, column + j, values[j]); }
  }
}

// One step of k: four rows of A and four columns of B.
fn add_step(c: ptr<function, array<vec4f, 4>>, a: vec4f, b: vec4f) {
  (*c)[0] += a.x * b;
  (*c)[1] += a.y * b;
  (*c)[2] += a.z * b;
  (*c)[3] += a.w * b;
}
