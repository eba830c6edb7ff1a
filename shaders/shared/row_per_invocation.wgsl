// needs: WORKGROUP
// gives: STEP, row_of, start_of, keeps, row_sum, row_max
// A row to an invocation: no barriers, which is what software adapters like. Gives what row_per_workgroup.wgsl
// gives, so that a kernel which reduces rows is one text.

const STEP = 1u;

fn row_of(group: u32, lane: u32) -> u32 { return group * WORKGROUP + lane; }
fn start_of(lane: u32) -> u32 { return 0u; }
fn keeps(lane: u32) -> bool { return true; }

fn row_sum(lane: u32, value: f32) -> f32 { return value; }
fn row_max(lane: u32, value: f32) -> f32 { return value; }
