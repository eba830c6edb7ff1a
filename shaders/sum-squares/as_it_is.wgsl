// needs: elem
// gives: x_size, taken
// What sums of squares are of: x as it is.

@group(0) @binding(1) var<storage, read> x: array<elem>;             // (size)

fn x_size() -> u32 { return arrayLength(&x); }
fn taken(i: u32) -> elem { return x[i]; }
