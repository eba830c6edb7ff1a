// needs: inside, within
// gives: delta, load_y
// The row term of the softmax gradient, delta = sum over the head of dy * y, made for the pass over keys: see delta_made_4.wgsl.
@group(0) @binding(5) var<storage, read_write> delta: array<f32>;  // (rows, all_heads)
@group(0) @binding(6) var<storage, read> y: array<f32>;            // (rows, all_heads * HEAD)

fn load_y(at: u32, d: u32) -> vec4f {
  let i = within(at, d);
  return inside(d, vec4f(y[i.x], y[i.y], y[i.z], y[i.w]));
}
