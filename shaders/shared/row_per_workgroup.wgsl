// needs: WORKGROUP
// gives: STEP, row_of, start_of, keeps, row_sum, row_max
// A row to a workgroup: what real GPUs like. An invocation works on every STEP-th elem of it from `start_of` on,
// and one of them `keeps` what there is one of per row. Reductions are trees of fixed shape: the order of addition
// is the same everywhere. Every invocation calls with its own value and gets the result.

const STEP = WORKGROUP;

fn row_of(group: u32, lane: u32) -> u32 { return group; }
fn start_of(lane: u32) -> u32 { return lane; }
fn keeps(lane: u32) -> bool { return lane == 0u; }

var<workgroup> scratch: array<f32, WORKGROUP>;

fn row_sum(lane: u32, value: f32) -> f32 {
  scratch[lane] = value;
  for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { scratch[lane] += scratch[lane + half]; }
  }
  workgroupBarrier();
  let sum = scratch[0];
  workgroupBarrier(); // before the next call overwrites scratch[0]
  return sum;
}

fn row_max(lane: u32, value: f32) -> f32 {
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
