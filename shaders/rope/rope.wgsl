// needs: WORKGROUP
// needs: elem
// Rotary positions in place, one invocation per (row, head, elem of pairs). Half rotation: pair i of a head is its
// elements i and i + headSize / 2. Angles come from a table, for WGSL's sin and cos are inaccurate.
// direction is 1, or -1 for the inverse rotation, which is the backward pass.

struct Params { // headSize, stride, offset: in elem
  rows: u32, seq: u32, heads: u32, headSize: u32, stride: u32, offset: u32, positions: u32, direction: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> table: array<elem>;   // (positions, 2, headSize / 2): cos, sin
@group(0) @binding(2) var<storage, read> position: array<u32>; // (1): of the first row
@group(0) @binding(3) var<storage, read_write> x: array<elem>; // (rows, stride), heads from column offset

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  let half = p.headSize / 2u;
  let place = item / half;
  let pair = item - place * half;
  let row = place / p.heads;
  let head = place - row * p.heads;
  if (row >= p.rows) { return; }

  let t = min(position[0] + row % p.seq, p.positions - 1u) * p.headSize + pair;
  let cosine = table[t];
  let sine = table[t + half] * p.direction;
  let i = row * p.stride + p.offset + head * p.headSize + pair;
  let a = x[i];
  let b = x[i + half];
  x[i] = a * cosine - b * sine;
  x[i + half] = b * cosine + a * sine;
}
