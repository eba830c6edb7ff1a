// gives: SPAN, swap_x, swap_y, swap_xy
// A span of one lane, which swaps with no other.

const SPAN = 1u;

fn swap_x(v: vec4f) -> vec4f { return v; }
fn swap_y(v: vec4f) -> vec4f { return v; }
fn swap_xy(v: vec4f) -> vec4f { return v; }
