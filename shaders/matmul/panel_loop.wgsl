// needs: add_steps, STEPS, DEPTH
// gives: add_panel
// The steps of a panel in a loop.

// Bounds that a compiler sees: all but one read in a loop is then at a constant distance from another's address.
fn add_panel(y: u32, x: u32) {
  for (var k = 0u; k < DEPTH / STEPS; k++) { add_steps(min(k, DEPTH / STEPS - 1u), y, x); }
}
