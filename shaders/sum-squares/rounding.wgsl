// needs: narrowed, widened, scaled, unscaled
// gives: x_size, taken
// What sums of squares are of: x rounded to sixteen bits, which are kept in y, two to a word.

@group(0) @binding(1) var<storage, read> x: array<vec4f>;             // (size)
@group(0) @binding(3) var<storage, read_write> y: array<vec2u>;       // (size): four halves in each

fn x_size() -> u32 { return min(arrayLength(&x), arrayLength(&y)); }

fn taken(i: u32) -> vec4f {
  let words = narrowed(scaled(x[i]));
  y[i] = words;
  return unscaled(widened(words));
}
