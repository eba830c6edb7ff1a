// needs: A_ALONG_M, B_ALONG_K
// needs: place_a, place_b, load_a, load_b
// needs: p, initial
// needs: total_panels, store_totals
// needs: store
// gives: panel_a, panel_b, QUARTERS, STEPS, DEPTH
// C in tiles of 64 x 64, one to a workgroup of 8 x 8 lanes, each with 8 x 8 elements in registers; A and B pass
// through workgroup memory in panels of 16 steps of k, so that a value fetched is used 64 times. For GPUs.
// The panels are k-major: at each step of k a lane reads two vec4f of either for 64 multiply-adds. Its rows are
// 4 y .. + 3 and those 32 further down, its columns likewise, so that neighbouring lanes read neighbouring
// vec4f or the same one. Lanes fetch 4 x 4 blocks, neighbours along the side that is contiguous in memory.

const TILE = 64u;
const DEPTH = 16u;
const QUARTERS = TILE / 4u;
const STEPS = 4u;  // of k at a time

// One vec4f more than the 16 of a row: lanes that write a column of blocks meet in no memory bank.
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
  let y = lane / 8u;
  let x = lane % 8u;
  let at_y = min(y, 7u);
  let at_x = min(x, 7u);
  let row = tile_row + 4u * y;
  let column = tile_column + 4u * x;

  // The block that this lane fetches: `place` along the tile's side, `depth` along k, both in fours.
  let place_in_a = select(lane / 4u, lane % QUARTERS, A_ALONG_M != 0u);
  let depth_in_a = select(lane % 4u, lane / QUARTERS, A_ALONG_M != 0u);
  let place_in_b = select(lane % QUARTERS, lane / 4u, B_ALONG_K != 0u);
  let depth_in_b = select(lane / QUARTERS, lane % 4u, B_ALONG_K != 0u);
  let at_a = place_a(tile_row + 4u * place_in_a);
  let at_b = place_b(tile_column + 4u * place_in_b);

  // Two to a row: columns 0..3 and 32..35. Rows 4..7 are 32..35 of the tile.
  var sums: array<vec4f, 16>;
  for (var i = select(0u, 16u, p.accumulate != 0u); i > 0u; i--) {
    let r = min(row_of(row, i - 1u), p.M - 1u);
    let first = column + 32u * ((i - 1u) & 1u);
    for (var j = 0u; j < 4u; j++) { sums[i - 1u][j] = initial(r, min(first + j, p.N - 1u)); }
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
    // Bounds that a compiler sees: all but one read in a loop is then at a constant distance from another's address.
    for (var k = 0u; k < DEPTH / STEPS; k++) {
      let g = min(k, DEPTH / STEPS - 1u);
      add_step(&c, panel_a[g][0][at_y], panel_a[g][0][at_y + 8u], panel_b[g][0][at_x], panel_b[g][0][at_x + 8u]);
      add_step(&c, panel_a[g][1][at_y], panel_a[g][1][at_y + 8u], panel_b[g][1][at_x], panel_b[g][1][at_x + 8u]);
      add_step(&c, panel_a[g][2][at_y], panel_a[g][2][at_y + 8u], panel_b[g][2][at_x], panel_b[g][2][at_x + 8u]);
      add_step(&c, panel_a[g][3][at_y], panel_a[g][3][at_y + 8u], panel_b[g][3][at_x], panel_b[g][3][at_x + 8u]);
    }
  }
  store_totals(lane, tile_row, tile_column);
  sums = c;
  for (var i = 0u; i < 16u; i++) {
    let r = row_of(row, i);
    let first = column + 32u * (i & 1u);
    let width = select(0u, min(max(first, p.N) - first, 4u), r < p.M);
    let values = sums[i];
    for (var j = 0u; j < width; j++) { store(r, first + j, values[j]); }
  }
}

// The row of accumulator i of a lane whose first is `row`.
fn row_of(row: u32, i: u32) -> u32 { return row + ((i >> 1u) & 3u) + 32u * (i >> 3u); }

// One step of k: eight rows of A and eight columns of B.
fn add_step(c: ptr<function, array<vec4f, 16>>, a0: vec4f, a1: vec4f, b0: vec4f, b1: vec4f) {
  (*c)[0] += a0.x * b0;
  (*c)[1] += a0.x * b1;
  (*c)[2] += a0.y * b0;
  (*c)[3] += a0.y * b1;
  (*c)[4] += a0.z * b0;
  (*c)[5] += a0.z * b1;
  (*c)[6] += a0.w * b0;
  (*c)[7] += a0.w * b1;
  (*c)[8] += a1.x * b0;
  (*c)[9] += a1.x * b1;
  (*c)[10] += a1.y * b0;
  (*c)[11] += a1.y * b1;
  (*c)[12] += a1.z * b0;
  (*c)[13] += a1.z * b1;
  (*c)[14] += a1.w * b0;
  (*c)[15] += a1.w * b1;
}
