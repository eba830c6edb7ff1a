// needs: elem
// gives: parameter_size, parameter_at, set_parameter, keep_parameter
// Parameters of adamw as floats.

@group(0) @binding(7) var<storage, read_write> parameter: array<elem>; // (size)

fn parameter_size() -> u32 { return arrayLength(&parameter); }
fn parameter_at(i: u32) -> elem { return parameter[i]; }
fn set_parameter(i: u32, value: elem) { parameter[i] = value; }
fn keep_parameter(i: u32) {}
