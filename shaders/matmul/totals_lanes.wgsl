// needs: TOTALS_OF_A
// needs: load_a, load_b, steps
// needs: p
// gives: total_a, total_b
// Sums over k of each row of A, or of each column of B, beside C: what is added to a product has this for its gradient. In two
// levels, with the bits of column_sum.wgsl: p.block steps of k, then the blocks, four running sums in each. For K a multiple of 4.

@group(0) @binding(4) var<storage, read_write> totals: array<f32>;  // (M) of A, or (N) of B, from totals0

// Of the four rows or columns from there on.
fn total_a(place: vec4u, row: u32) { if (TOTALS_OF_A != 0u) { total_side(place, row, p.M); } }
fn total_b(place: vec4u, column: u32) { if (TOTALS_OF_A == 0u) { total_side(place, column, p.N); } }

fn load_side(place: vec4u, k: u32) -> mat4x4f {
  if (TOTALS_OF_A != 0u) { return load_a(place, k); }
  return load_b(place, k);
}

fn total_side(place: vec4u, first: u32, size: u32) {
  let end = steps();
  let blocks = (end + p.block - 1u) / p.block;
  var t0 = vec4f(); var t1 = vec4f(); var t2 = vec4f(); var t3 = vec4f();
  for (var block = 0u; block < blocks; block++) {
    // Column j: the four running sums of row or column j.
    var running = mat4x4f();
    let last = min(end, (block + 1u) * p.block);
    for (var k = block * p.block; k < last; k += 4u) { running += load_side(place, k); }
    let s = vec4f(all_of(running[0]), all_of(running[1]), all_of(running[2]), all_of(running[3]));
    // What is left of the last four is the first sum's.
    let i = select(0u, block & 3u, block < (blocks & ~3u));
    t0 += select(vec4f(), s, i == 0u);
    t1 += select(vec4f(), s, i == 1u);
    t2 += select(vec4f(), s, i == 2u);
    t3 += select(vec4f(), s, i == 3u);
  }
  let all = (t0 + t1) + (t2 + t3);
  for (var j = 0u; j < min(4u, max(first, size) - first); j++) {
    var sum = all[j];
    if (p.accumulate_totals != 0u) { sum += totals[p.totals0 + first + j]; }
    totals[p.totals0 + first + j] = sum;
  }
}

fn all_of(running: vec4f) -> f32 { return (running.x + running.y) + (running.z + running.w); }
