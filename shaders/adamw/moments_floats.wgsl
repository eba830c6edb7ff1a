// needs: elem
// gives: moments_size, first_moment, second_moment, set_moments
// Moments of adamw as floats.

@group(0) @binding(5) var<storage, read_write> m: array<elem>; // (size)
@group(0) @binding(6) var<storage, read_write> v: array<elem>; // (size)

fn moments_size() -> u32 { return min(arrayLength(&m), arrayLength(&v)); }
fn first_moment(i: u32) -> elem { return m[i]; }
fn second_moment(i: u32) -> elem { return v[i]; }
fn set_moments(i: u32, first: elem, second: elem) {
  m[i] = first;
  v[i] = second;
}
