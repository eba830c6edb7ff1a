// needs: c, place_in_c, elem, mark_at, p
// needs: logit_of, loss_gradient
// gives: store
// The gradient of the cross-entropy by the logits that the product makes: these are not stored.
@group(0) @binding(4) var<storage, read> lse: array<vec2f>;         // (first_row + M): maximum, log(sum)
@group(0) @binding(5) var<storage, read> targets: array<i32>;       // (first_row + M)
@group(0) @binding(6) var<storage, read> gradientScale: array<f32>; // (1)

fn store(row: u32, column: u32, sum: elem) {
  let label = targets[p.first_row + row];
  let terms = lse[p.first_row + row];
  let hit = mark_at(column, bitcast<u32>(label) - p.first_label);
  let d = loss_gradient(logit_of(sum, column), elem(terms.x), elem(terms.y), hit, gradientScale[0]);
  c[place_in_c(row, column)] = select(d, elem(), label == p.ignore_index);
}
