// Reductions over one workgroup, as a tree of fixed shape: the order of addition is the same everywhere.
// Every invocation calls with its own value and gets the result. Appended to the shaders that use it.

var<workgroup> scratch: array<f32, WORKGROUP>;

fn group_sum(lane: u32, value: f32) -> f32 {
  scratch[lane] = value;
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { scratch[lane] += scratch[lane + half]; }
  }
  workgroupBarrier();
  let total = scratch[0];
  workgroupBarrier(); // before the next call overwrites scratch[0]
  return total;
}

fn group_max(lane: u32, value: f32) -> f32 {
  scratch[lane] = value;
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { scratch[lane] = max(scratch[lane], scratch[lane + half]); }
  }
  workgroupBarrier();
  let top = scratch[0];
  workgroupBarrier();
  return top;
}
