// needs: QUADS, SPLIT
// needs: place_a, place_b, steps, load_b, load_a
// needs: p, start_of, finish, add_columns
// needs: total_a, total_b
// C in tiles of 16 x 16, one to a quad of lanes, for adapters on which a load costs far more than a
// multiply-add (CPUs that run shaders: a lane is a SIMD lane there). Each lane holds 4 rows of A and 4 columns
// of B and meets the other lanes' rows by quad swaps, one register shuffle each: 32 values loaded serve 256
// multiply-adds. A quad is four lanes with consecutive subgroup_invocation_id, from a multiple of 4 on. How
// these lie in local_invocation_index is not promised, so a workgroup is one whole subgroup of 4 * QUADS lanes,
// numbered by subgroup_invocation_id alone. Accumulators are named (an array indexed by a variable lives in
// memory), four steps of k are one update (writing a loop variable is masked), and no `/` or `%` is in the loop
// (a scalar division per lane).
enable subgroups;

@compute @workgroup_size(4 * QUADS)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(subgroup_invocation_id) index: u32) {
  let across = (p.N + 16u * QUADS - 1u) / (16u * QUADS);
  let tile = group.y * groups.x + group.x;
  let lane = index & 3u;
  let row = 16u * (tile / across);
  let column = 16u * ((tile % across) * QUADS + (index >> 2u)) + 4u * lane;
  if (row >= p.M) { return; }
  // Lane l holds rows row + 4 l .. + 3 of A and columns column .. + 3 of B. Its accumulator 4 i + x is row
  // row + 4 (l ^ x) + i of C.
  let at_a = place_a(row + 4u * lane);
  let at_b = place_b(column);
  if (column == 4u * lane) { total_a(at_a, row + 4u * lane); }
  if (row == 0u) { total_b(at_b, column); }

  var sums: array<vec4f, 16>;
  for (var i = select(0u, 16u, p.accumulate != 0u); i > 0u; i--) {
    sums[i - 1u] = start_of(row + 4u * (lane ^ ((i - 1u) & 3u)) + ((i - 1u) >> 2u), column);
  }
  var c0 = sums[0]; var c1 = sums[1]; var c2 = sums[2]; var c3 = sums[3];
  var c4 = sums[4]; var c5 = sums[5]; var c6 = sums[6]; var c7 = sums[7];
  var c8 = sums[8]; var c9 = sums[9]; var c10 = sums[10]; var c11 = sums[11];
  var c12 = sums[12]; var c13 = sums[13]; var c14 = sums[14]; var c15 = sums[15];
  let end = steps();
  for (var k = 0u; k < end; k += 4u) {
    let b = load_b(at_b, k);
    let rows = load_a(at_a, k);
    if (SPLIT != 0u) {
      let r0 = rows[0]; c0 = add_three(c0, r0, b);
      let r1 = quadSwapX(rows[0]); c1 = add_three(c1, r1, b);
      let r2 = quadSwapY(rows[0]); c2 = add_three(c2, r2, b);
      let r3 = quadSwapDiagonal(rows[0]); c3 = add_three(c3, r3, b);
      let r4 = rows[1]; c4 = add_three(c4, r4, b);
      let r5 = quadSwapX(rows[1]); c5 = add_three(c5, r5, b);
      let r6 = quadSwapY(rows[1]); c6 = add_three(c6, r6, b);
      let r7 = quadSwapDiagonal(rows[1]); c7 = add_three(c7, r7, b);
      let r8 = rows[2]; c8 = add_three(c8, r8, b);
      let r9 = quadSwapX(rows[2]); c9 = add_three(c9, r9, b);
      let r10 = quadSwapY(rows[2]); c10 = add_three(c10, r10, b);
      let r11 = quadSwapDiagonal(rows[2]); c11 = add_three(c11, r11, b);
      let r12 = rows[3]; c12 = add_three(c12, r12, b);
      let r13 = quadSwapX(rows[3]); c13 = add_three(c13, r13, b);
      let r14 = quadSwapY(rows[3]); c14 = add_three(c14, r14, b);
      let r15 = quadSwapDiagonal(rows[3]); c15 = add_three(c15, r15, b);
      c0 = add_last(c0, r0, b); c1 = add_last(c1, r1, b); c2 = add_last(c2, r2, b); c3 = add_last(c3, r3, b);
      c4 = add_last(c4, r4, b); c5 = add_last(c5, r5, b); c6 = add_last(c6, r6, b); c7 = add_last(c7, r7, b);
      c8 = add_last(c8, r8, b); c9 = add_last(c9, r9, b); c10 = add_last(c10, r10, b); c11 = add_last(c11, r11, b);
      c12 = add_last(c12, r12, b); c13 = add_last(c13, r13, b); c14 = add_last(c14, r14, b); c15 = add_last(c15, r15, b);
    } else {
      c0 = add_columns(c0, rows[0], b);
      c1 = add_columns(c1, quadSwapX(rows[0]), b);
      c2 = add_columns(c2, quadSwapY(rows[0]), b);
      c3 = add_columns(c3, quadSwapDiagonal(rows[0]), b);
      c4 = add_columns(c4, rows[1], b);
      c5 = add_columns(c5, quadSwapX(rows[1]), b);
      c6 = add_columns(c6, quadSwapY(rows[1]), b);
      c7 = add_columns(c7, quadSwapDiagonal(rows[1]), b);
      c8 = add_columns(c8, rows[2], b);
      c9 = add_columns(c9, quadSwapX(rows[2]), b);
      c10 = add_columns(c10, quadSwapY(rows[2]), b);
      c11 = add_columns(c11, quadSwapDiagonal(rows[2]), b);
      c12 = add_columns(c12, rows[3], b);
      c13 = add_columns(c13, quadSwapX(rows[3]), b);
      c14 = add_columns(c14, quadSwapY(rows[3]), b);
      c15 = add_columns(c15, quadSwapDiagonal(rows[3]), b);
    }
  }
  // Stored by a loop: one by one they take longer to compile than all the rest, and leave the sums no registers.
  sums = array<vec4f, 16>(c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15);
  for (var i = 0u; i < 16u; i++) { finish(row + 4u * (lane ^ (i & 3u)) + (i >> 2u), column, sums[i]); }
}

// Of four steps of k the first three, for one row of A and four columns of B, and the last. Where SPLIT, all rows have their first
// three before one has its last: so SwiftShader's compiler finds registers for most of what it needs of B at a time. The order of a
// sum is the same.
fn add_three(sums: vec4f, a: vec4f, columns: mat4x4f) -> vec4f {
  return vec4f(three_products(sums.x, a, columns[0]), three_products(sums.y, a, columns[1]),
               three_products(sums.z, a, columns[2]), three_products(sums.w, a, columns[3]));
}
fn three_products(sum: f32, a: vec4f, b: vec4f) -> f32 { return sum + a.x * b.x + a.y * b.y + a.z * b.z; }
fn add_last(sums: vec4f, a: vec4f, columns: mat4x4f) -> vec4f {
  return vec4f(sums.x + a.w * columns[0].w, sums.y + a.w * columns[1].w,
               sums.z + a.w * columns[2].w, sums.w + a.w * columns[3].w);
}
