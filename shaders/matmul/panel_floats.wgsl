// needs: COLUMN_QUARTERS, STEPS, DEPTH
// gives: columns_at, keep_columns
// The panel of B, of floats.

// As that of A: one vec4f more than a row has.
var<workgroup> panel_b: array<array<array<vec4f, COLUMN_QUARTERS + 1>, STEPS>, DEPTH / STEPS>;  // (k / STEPS, k % STEPS, column / 4)

// Four columns, and those half a tile further on; at step i of quarter g of the panel.
fn columns_at(g: u32, i: u32, quarter: u32, further: u32) -> vec4f { return panel_b[g][i][quarter + COLUMN_QUARTERS / 2u * further]; }
fn keep_columns(g: u32, i: u32, quarter: u32, values: vec4f) { panel_b[g][i][quarter] = values; }
