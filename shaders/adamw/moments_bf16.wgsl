// needs: BLOCK, BLOCK_SHIFT, HYPER_ROUNDING_KEY, p, hyper, number_of, splitmix32
// gives: moments_size, first_moment, second_moment, set_moments
// Moments of adamw as bfloat16, two to a word, rounded up or down by chance: up in as many of 2^16 cases as the bits that go
// say, so that the mean is the float. Chance is a hash of the step's key and the number of the element among all that train.
// Of bits alone: the same on every adapter.

@group(0) @binding(5) var<storage, read_write> m: array<vec2u>; // (size): four moments in each
@group(0) @binding(6) var<storage, read_write> v: array<vec2u>; // (size)

fn moments_size() -> u32 { return min(arrayLength(&m), arrayLength(&v)); }
fn first_moment(i: u32) -> vec4f { return floats_in(m[i]); }
fn second_moment(i: u32) -> vec4f { return floats_in(v[i]); }

// One word for both: the lower half for the first, the upper half for the second.
fn set_moments(i: u32, first: vec4f, second: vec4f) {
  let start = splitmix32(key_word(0u));
  let last = key_word(1u);
  let element = number_of(p.maskOffset + (i >> BLOCK_SHIFT)) * BLOCK + ((4u * i) & (BLOCK - 1u));
  let chance = vec4u(chance_of(element, start, last), chance_of(element + 1u, start, last),
                     chance_of(element + 2u, start, last), chance_of(element + 3u, start, last));
  m[i] = rounded(first, chance & vec4u(0xffffu));
  v[i] = rounded(second, chance >> vec4u(16u));
}

fn chance_of(element: u32, start: u32, last: u32) -> u32 { return splitmix32(splitmix32(start ^ element) ^ last); }

// Each word of the key lies in two floats: any sixteen bits are one exactly.
fn key_word(i: u32) -> u32 {
  return u32(hyper[HYPER_ROUNDING_KEY + 2u * i]) | (u32(hyper[HYPER_ROUNDING_KEY + 2u * i + 1u]) << 16u);
}

fn floats_in(words: vec2u) -> vec4f {
  return bitcast<vec4f>(vec4u(words.x << 16u, words.x & 0xffff0000u, words.y << 16u, words.y & 0xffff0000u));
}

// `chance`: below 2^16. A NaN stays one, and infinity what it is.
fn rounded(value: vec4f, chance: vec4u) -> vec2u {
  let bits = bitcast<vec4u>(value);
  let size = bits & vec4u(0x7fffffffu);
  let kept = (bits >> vec4u(16u)) | select(vec4u(), vec4u(0x40u), size > vec4u(0x7f800000u));
  let halves = select((bits + chance) >> vec4u(16u), kept, size >= vec4u(0x7f800000u));
  return vec2u(halves.x | (halves.y << 16u), halves.z | (halves.w << 16u));
}
