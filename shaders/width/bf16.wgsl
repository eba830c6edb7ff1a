// gives: narrowed, widened
// Four floats as bfloat16, two to a word, the lower half first, and back. To nearest, ties to even; a NaN stays one, and what is
// past the largest becomes infinite. Of bits alone, so that no arithmetic can flush a subnormal.

fn narrowed(value: vec4f) -> vec2u {
  let bits = bitcast<vec4u>(value);
  let nearest = (bits + 0x7fffu + ((bits >> vec4u(16u)) & vec4u(1u))) >> vec4u(16u);
  let halves = select(nearest, (bits >> vec4u(16u)) | vec4u(0x40u), (bits & vec4u(0x7fffffffu)) > vec4u(0x7f800000u));
  return vec2u(halves.x | (halves.y << 16u), halves.z | (halves.w << 16u));
}

fn widened(words: vec2u) -> vec4f {
  return bitcast<vec4f>(vec4u(words.x << 16u, words.x & 0xffff0000u, words.y << 16u, words.y & 0xffff0000u));
}
