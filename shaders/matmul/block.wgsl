// needs: place_a, place_b, steps, a, b
// needs: p, start_of, finish
// needs: total_a, total_b
// C in blocks of 8 x 8, one to a lane, with no workgroup memory, no barriers and no subgroups: for adapters
// that run shaders on a CPU but show no subgroups. A workgroup is 2 x 4 lanes, a tile of 16 x 32. One step of k
// at a time: four at once, as in quads.wgsl, halve the speed on llvmpipe, which then spills the sums.

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let across = (p.N + 31u) / 32u;
  let tile = group.y * groups.x + group.x;
  let row = 16u * (tile / across) + 8u * (lane >> 2u);
  let column = 32u * (tile % across) + 8u * (lane & 3u);
  if (row >= p.M || column >= p.N) { return; }
  let at_a0 = place_a(row);
  let at_a1 = place_a(row + 4u);
  let at_b0 = place_b(column);
  let at_b1 = place_b(column + 4u);

  if (column == 0u) { total_a(at_a0, row); total_a(at_a1, row + 4u); }
  if (row == 0u) { total_b(at_b0, column); total_b(at_b1, column + 4u); }

  // Two to a row: columns 0..3 and 4..7.
  var sums: array<vec4f, 16>;
  for (var i = select(0u, 16u, p.accumulate != 0u); i > 0u; i--) {
    sums[i - 1u] = start_of(row + ((i - 1u) >> 1u), column + 4u * ((i - 1u) & 1u));
  }
  var c0 = sums[0]; var c1 = sums[1]; var c2 = sums[2]; var c3 = sums[3];
  var c4 = sums[4]; var c5 = sums[5]; var c6 = sums[6]; var c7 = sums[7];
  var c8 = sums[8]; var c9 = sums[9]; var c10 = sums[10]; var c11 = sums[11];
  var c12 = sums[12]; var c13 = sums[13]; var c14 = sums[14]; var c15 = sums[15];
  let end = steps();
  for (var k = 0u; k < end; k++) {
    let b0 = step_b(at_b0, k);
    let b1 = step_b(at_b1, k);
    let a0 = step_a(at_a0, k);
    c0 += a0.x * b0;
    c1 += a0.x * b1;
    c2 += a0.y * b0;
    c3 += a0.y * b1;
    c4 += a0.z * b0;
    c5 += a0.z * b1;
    c6 += a0.w * b0;
    c7 += a0.w * b1;
    let a1 = step_a(at_a1, k);
    c8 += a1.x * b0;
    c9 += a1.x * b1;
    c10 += a1.y * b0;
    c11 += a1.y * b1;
    c12 += a1.z * b0;
    c13 += a1.z * b1;
    c14 += a1.w * b0;
    c15 += a1.w * b1;
  }
  sums = array<vec4f, 16>(c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15);
  for (var i = 0u; i < 16u; i++) { finish(row + (i >> 1u), column + 4u * (i & 1u), sums[i]); }
}

// Four rows of A at one step of k, and four columns of B.
fn step_a(place: vec4u, k: u32) -> vec4f {
  let i = place + k * p.a_k;
  return vec4f(a[i.x], a[i.y], a[i.z], a[i.w]);
}
fn step_b(place: vec4u, k: u32) -> vec4f {
  let i = place + k * p.b_k;
  return vec4f(b[i.x], b[i.y], b[i.z], b[i.w]);
}
