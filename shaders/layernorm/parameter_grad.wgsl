// needs: WORKGROUP, ROW_BLOCK
// needs: elem
// LayerNorm's parameter gradients, summed over blocks of ROW_BLOCK rows: one invocation per (block, elem).
// dweight = sum dy * (x - mean) * rstd, dbias = sum dy. column_sum adds the blocks up.

struct Params { rows: u32, width: u32 } // width: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> dy: array<elem>;             // (rows, width)
@group(0) @binding(2) var<storage, read> x: array<elem>;              // (rows, width)
@group(0) @binding(3) var<storage, read> mean: array<f32>;            // (rows)
@group(0) @binding(4) var<storage, read> rstd: array<f32>;            // (rows)
@group(0) @binding(5) var<storage, read_write> partials: array<elem>; // (blocks, 2, width): dweight, dbias

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let block = item / p.width;
  let c = item % p.width;
  let first = block * ROW_BLOCK;
  if (first >= p.rows) { return; }

  let last = min(first + ROW_BLOCK, min(min(p.rows, min(arrayLength(&mean), arrayLength(&rstd))), min(arrayLength(&x), arrayLength(&dy))));

  var dweight = elem();
  var dbias = elem();
  for (var row = first; row < last; row++) {
    let i = row * p.width + c;
    let d = dy[i];
    dweight += d * ((x[i] - mean[row]) * rstd[row]);
    dbias += d;
  }
  partials[block * 2u * p.width + c] = dweight;
  partials[(block * 2u + 1u) * p.width + c] = dbias;
}
