// gives: narrowed, widened
// Four floats as binary16, two to a word, the lower half first, and back. To nearest, ties to even; a NaN stays one, and what is
// past the largest becomes infinite. Not pack2x16float, whose rounding each adapter may choose: narrowing is of bits alone, and
// the same everywhere, subnormals included.

fn narrowed(value: vec4f) -> vec2u {
  let bits = bitcast<vec4u>(value);
  let size = bits & vec4u(0x7fffffffu);
  let normal = (size + 0xc8000fffu + ((size >> vec4u(13u)) & vec4u(1u))) >> vec4u(13u);
  // Multiples of 2^-24: of the fraction, what is left of it so many places further down. From 25 on that is nothing.
  let places = min(vec4u(126u) - min(size >> vec4u(23u), vec4u(126u)), vec4u(25u));
  let fraction = (size & vec4u(0x7fffffu)) | vec4u(0x800000u);
  let halfway = (vec4u(1u) << max(places, vec4u(1u))) >> vec4u(1u);
  let subnormal = (fraction + halfway - 1u + ((fraction >> places) & vec4u(1u))) >> places;
  var halves = select(normal, subnormal, size < vec4u(0x38800000u));
  halves = select(halves, vec4u(0x7c00u), size > vec4u(0x477fefffu));
  halves = select(halves, vec4u(0x7e00u) | ((size >> vec4u(13u)) & vec4u(0x3ffu)), size > vec4u(0x7f800000u));
  halves |= (bits >> vec4u(16u)) & vec4u(0x8000u);
  return vec2u(halves.x | (halves.y << 16u), halves.z | (halves.w << 16u));
}

fn widened(words: vec2u) -> vec4f {
  return vec4f(unpack2x16float(words.x), unpack2x16float(words.y));
}
