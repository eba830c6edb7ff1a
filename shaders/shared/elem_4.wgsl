// gives: elem, LANES, total, highest, inside
// What a shader written in `elem` loads at once: four floats, for one address and one bounds check. Its sizes,
// strides and offsets count elem, LANES floats each.
//
// A loop over elem asks arrayLength before it begins: SwiftShader, which computes it with four scalar divisions,
// does so in every index clamp inside the loop otherwise.

alias elem = vec4f;
const LANES = 4u;

fn total(v: elem) -> f32 { return (v.x + v.y) + (v.z + v.w); }
fn highest(v: elem) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }

// Which floats of elem i are among floats begin..end-1.
fn inside(i: u32, begin: u32, end: u32) -> vec4<bool> {
  let at = 4u * i + vec4u(0u, 1u, 2u, 3u);
  return (at >= vec4u(begin)) & (at < vec4u(end));
}
