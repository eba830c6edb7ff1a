// needs: WORKGROUP
// Images cut into patches, one invocation per element: a row for each patch, patches row by row, a patch's elements in the
// order of channels, rows and columns.

struct Params { size: u32, channels: u32, height: u32, width: u32, patch_height: u32, patch_width: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> pixels: array<f32>;     // (batch, channels, height, width)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;    // (batch, patches, channels * patch_height * patch_width)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let item = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (item >= p.size) { return; }
  let across = p.width / p.patch_width;
  let down = p.height / p.patch_height;
  let column = item % p.patch_width;
  let row = (item / p.patch_width) % p.patch_height;
  let channel = (item / (p.patch_width * p.patch_height)) % p.channels;
  let patch_index = item / (p.patch_width * p.patch_height * p.channels);
  let image = patch_index / (across * down);
  let place = patch_index % (across * down);
  let from_row = (place / across) * p.patch_height + row;
  let from_column = (place % across) * p.patch_width + column;
  y[item] = pixels[((image * p.channels + channel) * p.height + from_row) * p.width + from_column];
}
