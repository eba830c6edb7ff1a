// needs: elem
// gives: logit_of
// The logits that sums are.

fn logit_of(sum: elem, column: u32) -> elem { return sum; }
