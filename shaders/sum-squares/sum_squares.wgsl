// needs: WORKGROUP, BLOCK
// needs: elem, LANES, total, x_size, taken
// Sums of squares over blocks of BLOCK elements, one invocation per block. Eight running sums, combined in
// pairs, keep the rounding of a gradient norm below what the next steps add.

struct Params { size: u32, first: u32 } // size: in elem

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read_write> partials: array<f32>; // (first + blocks)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let block = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let size = min(p.size, x_size());
  var i = block * (BLOCK / LANES);
  if (i >= size) { return; }
  let end = min(i + BLOCK / LANES, size);

  var a = elem(); var b = elem(); var c = elem(); var d = elem();
  var e = elem(); var f = elem(); var g = elem(); var h = elem();
  for (; i + 8u <= end; i += 8u) {
    let x0 = taken(i); let x1 = taken(i + 1u); let x2 = taken(i + 2u); let x3 = taken(i + 3u);
    a += x0 * x0; b += x1 * x1; c += x2 * x2; d += x3 * x3;
    let x4 = taken(i + 4u); let x5 = taken(i + 5u); let x6 = taken(i + 6u); let x7 = taken(i + 7u);
    e += x4 * x4; f += x5 * x5; g += x6 * x6; h += x7 * x7;
  }
  for (; i < end; i++) { let rest = taken(i); a += rest * rest; }
  partials[p.first + block] = total(((a + b) + (c + d)) + ((e + f) + (g + h)));
}
