// needs: WORKGROUP, ROW_BLOCK
// needs: elem, p
// needs: OUTPUTS, terms_of, rows_to_sum, sum_so_far, keep_sum
// gives: sum_columns
// Sums of columns over rows, a column to an invocation: what software adapters like. Rows of a block are added up, then the
// blocks in their order, from what is there on: rows may come in parts that begin with a block, and no bit changes.

fn sum_columns(group: u32, lane: u32) {
  let column = group * WORKGROUP + lane;
  if (column >= p.width) { return; }
  let rows = rows_to_sum();
  var first_sum = sum_so_far(0u, column);
  var last_sum = sum_so_far(OUTPUTS - 1u, column);
  for (var first = 0u; first < p.rows; first += ROW_BLOCK) {
    var first_of_block = elem();
    var last_of_block = elem();
    let end = min(first + ROW_BLOCK, rows);
    for (var row = first; row < end; row++) {
      let terms = terms_of(row, column);
      first_of_block += terms.first;
      last_of_block += terms.last;
    }
    if (p.by_block != 0u) {
      let at = first / ROW_BLOCK * p.width + column;
      keep_sum(0u, at, first_of_block);
      if (OUTPUTS > 1u) { keep_sum(1u, at, last_of_block); }
    } else {
      first_sum += first_of_block;
      last_sum += last_of_block;
    }
  }
  if (p.by_block != 0u) { return; }
  keep_sum(0u, column, first_sum);
  if (OUTPUTS > 1u) { keep_sum(1u, column, last_sum); }
}
