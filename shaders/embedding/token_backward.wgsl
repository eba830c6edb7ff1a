// needs: WORKGROUP
// needs: elem
// Token embedding backward, one invocation per (slot, elem), where a slot is a distinct token of the batch:
// the rows of dy that hold the token are summed in ascending order, then added to its row of dweight, times scale.
// No two invocations touch one element, so no atomics; slots without a token hold 0xffffffff.
// `dweight` holds rows of the vocabulary from `first` on; of these, tokens of rows before `begin`, or from `end` on, are left out.

struct Params { rows: u32, width: u32, first: u32, begin: u32, end: u32, scale: f32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;         // (rows)
@group(0) @binding(2) var<storage, read> starts: array<u32>;         // (rows + 1)
@group(0) @binding(3) var<storage, read> order: array<u32>;          // (rows)
@group(0) @binding(4) var<storage, read> dy: array<elem>;            // (rows, width)
@group(0) @binding(5) var<storage, read_write> dweight: array<elem>; // (rows from first on, width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let slot = item / p.width;
  let c = item - slot * p.width;
  if (slot >= p.rows) { return; }
  let token = tokens[slot];
  if (token < p.first || token - p.first < p.begin || token - p.first >= p.end) { return; }

  let last = min(starts[slot + 1u], arrayLength(&order));
  var sum = elem();
  for (var j = starts[slot]; j < last; j++) { sum += dy[order[j] * p.width + c]; }
  dweight[(token - p.first) * p.width + c] += sum * p.scale;
}
