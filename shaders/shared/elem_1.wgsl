// gives: elem, LANES, total, highest, inside
// What a shader written in `elem` loads at once: one float. See elem_4.wgsl.

alias elem = f32;
const LANES = 1u;

fn total(v: elem) -> f32 { return v; }
fn highest(v: elem) -> f32 { return v; }
fn inside(i: u32, begin: u32, end: u32) -> bool { return i >= begin && i < end; }
