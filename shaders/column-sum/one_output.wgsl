// needs: elem
// needs: p
// gives: store
@group(0) @binding(2) var<storage, read_write> y: array<elem>; // (blocks, width) from `into` on

fn store(item: u32, sum: elem) {
  var all = sum;
  if (p.accumulate != 0u) { all += y[p.into + item]; }
  y[p.into + item] = all;
}
