// needs: add_steps, STEPS, DEPTH
// gives: add_panel
// The steps of a panel one by one: every read is at a constant distance from the lane's first. On an H100 an eighth
// faster than their loop; a software adapter takes several times as long to compile them.

const_assert DEPTH / STEPS == 4u;

fn add_panel(y: u32, x: u32) {
  add_steps(0u, y, x);
  add_steps(1u, y, x);
  add_steps(2u, y, x);
  add_steps(3u, y, x);
}
