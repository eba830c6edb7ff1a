// needs: WORKGROUP
// needs: row_of, start_of, STEP, row_max, row_sum, keeps
// needs: elem, LANES, inside, highest, total
// One tile of the vocabulary enters the softmax statistics of its rows, a row to an invocation or to a workgroup: the
// running maximum, the running sum of exp(logit - maximum), the target's logit when it lies in this tile.

struct Params { rows: u32, tile: u32, first: u32, begin: u32, firstRow: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<elem>;       // (rows, tile)
@group(0) @binding(2) var<storage, read> targets: array<i32>;       // (firstRow + rows)
@group(0) @binding(3) var<storage, read_write> maximum: array<f32>; // (firstRow + rows)
@group(0) @binding(4) var<storage, read_write> sum: array<f32>;     // (firstRow + rows): of exp(logit - maximum)
@group(0) @binding(5) var<storage, read_write> picked: array<f32>;  // (firstRow + rows): the logit of the target

const LOWEST = -3.4e38;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let row = row_of(group.y * groups.x + group.x, lane);
  if (row >= p.rows) { return; }
  let begin = row * p.tile;
  let end = min(begin + p.tile, LANES * arrayLength(&logits));

  // The first and the last elem may reach into the rows beside.
  var tops = elem(LOWEST);
  for (var i = begin / LANES + start_of(lane); i * LANES < end; i += STEP) {
    tops = max(tops, select(elem(LOWEST), logits[i], inside(i, begin, end)));
  }
  var top = row_max(lane, highest(tops));
  // Of logits there are these rows alone, of all else those of the whole.
  let whole = row + p.firstRow;
  if (p.begin == 0u) { top = max(top, maximum[whole]); }

  var parts = elem();
  for (var i = begin / LANES + start_of(lane); i * LANES < end; i += STEP) {
    parts += select(elem(), exp(logits[i] - top), inside(i, begin, end));
  }
  var all = row_sum(lane, total(parts));
  if (!keeps(lane)) { return; }
  if (p.begin == 0u) { all += sum[whole] * exp(maximum[whole] - top); }
  maximum[whole] = top;
  sum[whole] = all;

  let c = targets[whole] - i32(p.first);
  if (c >= 0 && c < i32(p.tile)) {
    let at = begin + u32(c);
    picked[whole] = total(select(elem(), logits[at / LANES], inside(at / LANES, at, at + 1u)));
  } else if (p.begin != 0u) {
    picked[whole] = 0.0;
  }
}
