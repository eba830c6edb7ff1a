// gives: delta
// The row term of the softmax gradient, as the pass over queries has left it.
@group(0) @binding(5) var<storage, read> delta: array<f32>;  // (rows, all_heads)
