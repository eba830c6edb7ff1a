// gives: delta, load_y
// The row term of the softmax gradient, delta = sum over the head of dy * y, in vec4f: one chain of multiply-adds, as dy.v is, so
// that of a lone key both are the same.
@group(0) @binding(5) var<storage, read_write> delta: array<f32>;  // (rows, all_heads)
@group(0) @binding(6) var<storage, read> y: array<vec4f>;          // (rows, all_heads * HEAD)

fn load_y(at: u32, d: u32) -> vec4f { return y[at + d]; }
