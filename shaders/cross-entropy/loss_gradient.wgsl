// needs: elem
// gives: loss_gradient
// The gradient of a cross-entropy by logits of a row whose logsumexp is top + log_sum; hit: 1 for the target's.

fn loss_gradient(logit: elem, top: elem, log_sum: elem, hit: elem, scale: f32) -> elem {
  return (exp((logit - top) - log_sum) - hit) * scale;
}
