// needs: WORKGROUP, ROW_BLOCK, COLUMNS
// needs: elem, p
// needs: OUTPUTS, terms_of, rows_to_sum, sum_so_far, keep_sum
// gives: sum_columns
// Sums of columns over rows, COLUMNS of them to a workgroup, which reads whole lines of memory: an invocation adds the rows of
// a block up, and the first ones the blocks in their order, from what is there on. The bits of columns_per_invocation.wgsl.

const BLOCKS = WORKGROUP / COLUMNS; // at a time

var<workgroup> of_blocks: array<elem, OUTPUTS * WORKGROUP>;

fn sum_columns(group: u32, lane: u32) {
  let own = lane % COLUMNS;
  let column = group * COLUMNS + own;
  let part = lane / COLUMNS;
  // The first invocations have an output each.
  let adds = part < OUTPUTS && column < p.width;
  let rows = select(0u, rows_to_sum(), column < p.width);
  var sum = elem();
  if (adds) { sum = sum_so_far(part, column); }
  for (var first = 0u; first < p.rows; first += BLOCKS * ROW_BLOCK) {
    let begin = first + part * ROW_BLOCK;
    var first_of_block = elem();
    var last_of_block = elem();
    let end = min(begin + ROW_BLOCK, rows);
    for (var row = begin; row < end; row++) {
      let terms = terms_of(row, column);
      first_of_block += terms.first;
      last_of_block += terms.last;
    }
    of_blocks[lane] = first_of_block;
    if (OUTPUTS > 1u) { of_blocks[(OUTPUTS - 1u) * WORKGROUP + lane] = last_of_block; }
    workgroupBarrier();
    if (adds) {
      let blocks = min(BLOCKS, (p.rows - first + ROW_BLOCK - 1u) / ROW_BLOCK);
      for (var block = 0u; block < blocks; block++) {
        let of_block = of_blocks[part * WORKGROUP + block * COLUMNS + own];
        if (p.by_block != 0u) {
          keep_sum(part, (first / ROW_BLOCK + block) * p.width + column, of_block);
        } else { sum += of_block; }
      }
    }
    workgroupBarrier();
  }
  if (adds && p.by_block == 0u) { keep_sum(part, column, sum); }
}
