// needs: LANES, ROWS
// needs: place_a, place_b, steps, load_b, load_row
// needs: p, start_of, finish, add_columns
// needs: total_a, total_b
// C for few rows (a token at a time, in generation): a lane owns four columns of up to four rows, so nothing
// of B is read twice and no lane works on rows that are not there. ROWS is M, or 4 where M is more.

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let across = (p.N + 4u * LANES - 1u) / (4u * LANES);
  let tile = group.y * groups.x + group.x;
  let row = 4u * (tile / across);
  let column = 4u * (tile % across * LANES + lane);
  if (row >= p.M || column >= p.N) { return; }
  let at_a = place_a(row);
  let at_b = place_b(column);
  if (column == 0u) { total_a(at_a, row); }
  if (row == 0u) { total_b(at_b, column); }

  var sums: array<vec4f, 4>;
  for (var i = select(0u, ROWS, p.accumulate != 0u); i > 0u; i--) {
    sums[i - 1u] = start_of(row + i - 1u, column);
  }
  var c0 = sums[0]; var c1 = sums[1]; var c2 = sums[2]; var c3 = sums[3];
  let end = steps();
  for (var k = 0u; k < end; k += 4u) {
    let b = load_b(at_b, k);
    c0 = add_columns(c0, load_row(at_a.x, k), b);
    if (ROWS > 1u) { c1 = add_columns(c1, load_row(at_a.y, k), b); }
    if (ROWS > 2u) { c2 = add_columns(c2, load_row(at_a.z, k), b); }
    if (ROWS > 3u) { c3 = add_columns(c3, load_row(at_a.w, k), b); }
  }
  sums = array<vec4f, 4>(c0, c1, c2, c3);
  for (var i = 0u; i < ROWS; i++) { finish(row + i, column, sums[i]); }
}
