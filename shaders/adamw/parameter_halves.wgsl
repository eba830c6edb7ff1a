// gives: parameter_size, parameter_at, set_parameter, keep_parameter
// Parameters of adamw as halves of floats, two to a word: the upper half is the nearest bfloat16, ties away from zero, and
// with the lower one the float, bit for bit. Of bits alone, so that no arithmetic can flush a subnormal.

@group(0) @binding(7) var<storage, read_write> high: array<vec2u>; // (size): four floats in each
@group(0) @binding(8) var<storage, read_write> low: array<vec2u>;  // (size)

fn parameter_size() -> u32 { return min(arrayLength(&high), arrayLength(&low)); }

fn parameter_at(i: u32) -> vec4f {
  let h = high[i];
  let l = low[i];
  let upper = vec4u(h.x << 16u, h.x & 0xffff0000u, h.y << 16u, h.y & 0xffff0000u);
  let lower = vec4u(l.x & 0xffffu, l.x >> 16u, l.y & 0xffffu, l.y >> 16u);
  // What was carried up is taken back.
  return bitcast<vec4f>((upper | lower) - ((lower & vec4u(0x8000u)) << vec4u(1u)));
}

fn set_parameter(i: u32, value: vec4f) {
  let bits = bitcast<vec4u>(value);
  let upper = (bits + 0x8000u) >> vec4u(16u);
  let lower = bits & vec4u(0xffffu);
  high[i] = vec2u(upper.x | (upper.y << 16u), upper.z | (upper.w << 16u));
  low[i] = vec2u(lower.x | (lower.y << 16u), lower.z | (lower.w << 16u));
}
fn keep_parameter(i: u32) {}
