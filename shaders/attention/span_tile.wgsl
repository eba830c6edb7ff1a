// needs: LANES
// needs: SPAN, swap_x, swap_y, swap_xy
// gives: ROWS, SPANS, dot_from, tile_from, swaps_x, swaps_y, swaps_xy, four
// What the span kernels of attention share. A span of SPAN lanes (a quad, or one lane where there are no
// subgroups) works on ROWS x ROWS pairs of a query and a key, ROWS = 4 SPAN: each lane holds 4 rows of the one
// side and loads 4 of the other, and meets the rows that its neighbours loaded by quad swaps. A 4 x 4 tile is
// a matrix with constant indexes, so it stays in registers. Spans of a workgroup take neighbouring heads and
// the same rows, so that their lanes loop alike.

const ROWS = 4u * SPAN;
const SPANS = LANES / SPAN;

// acc + a . b as one chain of multiply-adds, in the order of the elements.
fn dot_from(acc: f32, a: vec4f, b: vec4f) -> f32 { return acc + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

fn row_from(acc: vec4f, a: vec4f, b: mat4x4f) -> vec4f {
  return vec4f(dot_from(acc.x, a, b[0]), dot_from(acc.y, a, b[1]), dot_from(acc.z, a, b[2]), dot_from(acc.w, a, b[3]));
}

// acc[i][j] + a[i] . b[j]
fn tile_from(acc: mat4x4f, a: mat4x4f, b: mat4x4f) -> mat4x4f {
  return mat4x4f(row_from(acc[0], a[0], b), row_from(acc[1], a[1], b), row_from(acc[2], a[2], b), row_from(acc[3], a[3], b));
}

fn swaps_x(m: mat4x4f) -> mat4x4f { return mat4x4f(swap_x(m[0]), swap_x(m[1]), swap_x(m[2]), swap_x(m[3])); }
fn swaps_y(m: mat4x4f) -> mat4x4f { return mat4x4f(swap_y(m[0]), swap_y(m[1]), swap_y(m[2]), swap_y(m[3])); }
fn swaps_xy(m: mat4x4f) -> mat4x4f { return mat4x4f(swap_xy(m[0]), swap_xy(m[1]), swap_xy(m[2]), swap_xy(m[3])); }

// Four consecutive rows.
fn four(first: u32) -> vec4u { return vec4u(first) + vec4u(0u, 1u, 2u, 3u); }
