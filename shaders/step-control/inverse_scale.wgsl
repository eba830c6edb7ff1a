// gives: inverse_scale
// 1 / scale of a power of two, exactly: a quotient may be rounded.

fn inverse_scale(scale: f32) -> f32 { return bitcast<f32>(0x7f000000u - bitcast<u32>(scale)); }
