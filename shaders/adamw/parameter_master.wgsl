// needs: narrowed
// gives: parameter_size, parameter_at, set_parameter, keep_parameter
// Parameters of adamw as floats, and a copy of them in sixteen bits, two to a word, which kernels read.

@group(0) @binding(7) var<storage, read_write> parameter: array<vec4f>; // (size): four floats in each
@group(0) @binding(8) var<storage, read_write> copy: array<vec2u>;      // (size)

fn parameter_size() -> u32 { return min(arrayLength(&parameter), arrayLength(&copy)); }
fn parameter_at(i: u32) -> vec4f { return parameter[i]; }
fn set_parameter(i: u32, value: vec4f) {
  parameter[i] = value;
  copy[i] = narrowed(value);
}
fn keep_parameter(i: u32) { copy[i] = narrowed(parameter[i]); }
