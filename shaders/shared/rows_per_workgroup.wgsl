// needs: WORKGROUP
// gives: STEP, row_of, start_of, row_sum
// Several rows to a workgroup, each to ROW_LANES lanes side by side, as row_per_workgroup.wgsl has one: its bits. All lanes of a
// workgroup call `row_sum`, those of rows that are not there as well.

const ROW_LANES = 64u;
const STEP = ROW_LANES;

fn row_of(group: u32, lane: u32) -> u32 { return group * (WORKGROUP / ROW_LANES) + lane / ROW_LANES; }
fn start_of(lane: u32) -> u32 { return lane % ROW_LANES; }

var<workgroup> scratch: array<f32, WORKGROUP>;

fn row_sum(lane: u32, value: f32) -> f32 {
  scratch[lane] = value;
  for (var half = ROW_LANES / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane % ROW_LANES < half) { scratch[lane] += scratch[lane + half]; }
  }
  workgroupBarrier();
  let sum = scratch[lane - lane % ROW_LANES];
  workgroupBarrier(); // before the next call overwrites it
  return sum;
}
