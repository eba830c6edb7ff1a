// needs: WORKGROUP
// needs: elem, LANES, inside
// needs: loss_gradient
// Cross-entropy backward over one tile of the vocabulary, in place, one invocation per elem, of capped logits, cap * tanh(z / cap):
// dz = (exp(logit - lse) - [column is the target]) * scale * (1 - (logit / cap)^2), 0 in ignored rows.

struct Params { rows: u32, tile: u32, first: u32, ignoreIndex: i32, inverseCap: f32, firstRow: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> lse: array<vec2f>;         // (firstRow + rows): maximum, log(sum)
@group(0) @binding(2) var<storage, read> targets: array<i32>;       // (firstRow + rows)
@group(0) @binding(3) var<storage, read> scale: array<f32>;         // (1)
@group(0) @binding(4) var<storage, read_write> logits: array<elem>; // (rows, tile)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let at = item * LANES;
  if (at >= p.rows * p.tile) { return; }

  // An elem may belong to two rows, or to more where rows are short: gather what each float needs of its own.
  var top = elem();
  var log_sum = elem();
  var hit = elem();
  var kept = elem();
  // Of logits there are these rows alone, of all else those of the whole.
  let rows = min(p.firstRow + p.rows, min(arrayLength(&targets), arrayLength(&lse)));
  let own_row = at / p.tile;
  var row = own_row + p.firstRow;
  for (var begin = own_row * p.tile; begin < at + LANES && row < rows; begin += p.tile) {
    let wanted = targets[row];
    if (wanted != p.ignoreIndex) {
      let own = inside(item, begin, begin + p.tile);
      top = select(top, elem(lse[row].x), own);
      log_sum = select(log_sum, elem(lse[row].y), own);
      kept = select(kept, elem(1.0), own);
      let c = wanted - i32(p.first);
      if (c >= 0 && c < i32(p.tile)) {
        let target_at = begin + u32(c);
        hit = select(hit, elem(1.0), inside(item, target_at, target_at + 1u));
      }
    }
    row++;
  }
  let logit = logits[item];
  let t = logit * p.inverseCap;
  let d = loss_gradient(logit, top, log_sum, hit, scale[0]) * ((1.0 - t) * (1.0 + t));
  logits[item] = select(elem(), d, kept > elem());
}
