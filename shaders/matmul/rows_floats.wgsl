// needs: ROW_QUARTERS, STEPS, DEPTH
// gives: rows_at, keep_rows
// The panel of A, of floats.

// One vec4f more than those of a row: lanes that write a column of blocks meet in no memory bank.
var<workgroup> panel_a: array<array<array<vec4f, ROW_QUARTERS + 1>, STEPS>, DEPTH / STEPS>;  // (k / STEPS, k % STEPS, row / 4)

// Four rows, and those half a tile further down; at step i of quarter g of the panel.
fn rows_at(g: u32, i: u32, quarter: u32, further: u32) -> vec4f { return panel_a[g][i][quarter + ROW_QUARTERS / 2u * further]; }
fn keep_rows(g: u32, i: u32, quarter: u32, values: vec4f) { panel_a[g][i][quarter] = values; }
