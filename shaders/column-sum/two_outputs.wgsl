// needs: elem
// needs: p
// gives: store
// Of one block: its first columns, and those from p.split on.
@group(0) @binding(2) var<storage, read_write> y: array<elem>;
@group(0) @binding(3) var<storage, read_write> z: array<elem>;

fn store(item: u32, sum: elem) {
  var all = sum;
  if (item < p.split) {
    if (p.accumulate != 0u) { all += y[item]; }
    y[item] = all;
  } else {
    if (p.accumulate != 0u) { all += z[item - p.split]; }
    z[item - p.split] = all;
  }
}
