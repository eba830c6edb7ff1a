// gives: SPAN, swap_x, swap_y, swap_xy
enable subgroups;
// A span of 4 lanes, consecutive in a 1-D workgroup: lane l reads what l ^ 1, l ^ 2 and l ^ 3 hold.

const SPAN = 4u;

fn swap_x(v: vec4f) -> vec4f { return quadSwapX(v); }
fn swap_y(v: vec4f) -> vec4f { return quadSwapY(v); }
fn swap_xy(v: vec4f) -> vec4f { return quadSwapDiagonal(v); }
