// gives: x_size, taken
// What sums of squares are of: x rounded to bfloat16, which is kept in y, two to a word. To nearest, ties to even; a NaN
// stays one, and what is past the largest becomes infinite.

@group(0) @binding(1) var<storage, read> x: array<vec4f>;             // (size)
@group(0) @binding(3) var<storage, read_write> y: array<vec2u>;       // (size): four halves in each

fn x_size() -> u32 { return min(arrayLength(&x), arrayLength(&y)); }

fn taken(i: u32) -> vec4f {
  let bits = bitcast<vec4u>(x[i]);
  let nearest = (bits + 0x7fffu + ((bits >> vec4u(16u)) & vec4u(1u))) >> vec4u(16u);
  let halves = select(nearest, (bits >> vec4u(16u)) | vec4u(0x40u), (bits & vec4u(0x7fffffffu)) > vec4u(0x7f800000u));
  y[i] = vec2u(halves.x | (halves.y << 16u), halves.z | (halves.w << 16u));
  return bitcast<vec4f>(halves << vec4u(16u));
}
