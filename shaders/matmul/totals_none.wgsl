// gives: total_a, total_b, total_panels, store_totals
// For a product that makes nothing beside C.

fn total_a(place: vec4u, row: u32) {}
fn total_b(place: vec4u, column: u32) {}
fn total_panels(start: u32, lane: u32, tile_row: u32, tile_column: u32) {}
fn store_totals(lane: u32, tile_row: u32, tile_column: u32) {}
