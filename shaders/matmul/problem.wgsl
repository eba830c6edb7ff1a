// gives: p, add_columns
// What every matmul shares: the problem, and how products are added. The accumulators begin at the stored value
// when the product continues one, and terms are added one by one in increasing k, so a sum over k may be split over
// dispatches without changing a bit. An epilogue's `store`, appended behind this text, finishes each element.

// Element (m, k) of A is a[a0 + m * a_m + k * a_k], likewise (k, n) of B; one stride of each is 1.
struct Params {
  M: u32, N: u32, K: u32, a_m: u32, a_k: u32, b_k: u32, b_n: u32, c_m: u32,
  a0: u32, b0: u32, c0: u32, bias0: u32, accumulate: u32, scale: f32, block: u32,
  accumulate_totals: u32, totals0: u32,
  first_row: u32, first_label: u32, ignore_index: i32,
}

@group(0) @binding(0) var<uniform> p: Params;

// Four steps of k for one row of A (a) and one column of B (b). A chain of scalar operations, not a vector
// one: software adapters then keep the running sum in a register.
fn add_products(sum: f32, a: vec4f, b: vec4f) -> f32 {
  return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

// The same for four columns: columns[j] is column j of B over four steps of k.
fn add_columns(sums: vec4f, a: vec4f, columns: mat4x4f) -> vec4f {
  return vec4f(add_products(sums.x, a, columns[0]), add_products(sums.y, a, columns[1]),
               add_products(sums.z, a, columns[2]), add_products(sums.w, a, columns[3]));
}
