// gives: kept, kept_of, values_of
// Columns of B in a panel, as floats.

alias kept = vec4f;

fn kept_of(values: vec4f) -> kept { return values; }
fn values_of(columns: kept) -> vec4f { return columns; }
