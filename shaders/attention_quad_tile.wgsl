// What the quad kernels of attention share. A quad of 4 lanes works on 16 x 16 pairs of a query and a key:
// each lane holds 4 rows of the one side and loads 4 rows of the other, and meets the rows that the other
// lanes loaded by quad swaps. A 4 x 4 tile is a matrix with constant indexes, so it stays in registers.

/** acc + a . b as one chain of multiply-adds, in the order of the elements. */
fn dot_from(acc: f32, a: vec4f, b: vec4f) -> f32 { return acc + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

fn row_from(acc: vec4f, a: vec4f, b: mat4x4f) -> vec4f {
  return vec4f(dot_from(acc.x, a, b[0]), dot_from(acc.y, a, b[1]), dot_from(acc.z, a, b[2]), dot_from(acc.w, a, b[3]));
}

/** acc[i][j] + a[i] . b[j] */
fn tile_from(acc: mat4x4f, a: mat4x4f, b: mat4x4f) -> mat4x4f {
  return mat4x4f(row_from(acc[0], a[0], b), row_from(acc[1], a[1], b), row_from(acc[2], a[2], b), row_from(acc[3], a[3], b));
}

fn swap_x(m: mat4x4f) -> mat4x4f { return mat4x4f(quadSwapX(m[0]), quadSwapX(m[1]), quadSwapX(m[2]), quadSwapX(m[3])); }
fn swap_y(m: mat4x4f) -> mat4x4f { return mat4x4f(quadSwapY(m[0]), quadSwapY(m[1]), quadSwapY(m[2]), quadSwapY(m[3])); }
fn swap_diagonal(m: mat4x4f) -> mat4x4f {
  return mat4x4f(quadSwapDiagonal(m[0]), quadSwapDiagonal(m[1]), quadSwapDiagonal(m[2]), quadSwapDiagonal(m[3]));
}

/** Four rows of 4 consecutive indexes. */
fn four(first: u32) -> vec4u { return vec4u(first) + vec4u(0u, 1u, 2u, 3u); }
