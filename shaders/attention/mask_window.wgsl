// needs: WINDOW
// needs: p
// gives: seen, last_token, last_tokens, first_keys, lowest_key, first_query, end_of_queries
// A causal sliding window: a query sees its own token and the WINDOW - 1 before. See mask_causal.wgsl.

fn seen(base: u32, keys: vec4u, firsts: vec4u, lasts: vec4u) -> vec4<bool> { return (keys >= firsts) & (keys <= lasts); }

fn last_token(query: u32) -> u32 { return query; }
fn last_tokens(queries: vec4u) -> vec4u { return queries; }

fn first_keys(rows: vec4u, positions: vec4u) -> vec4u { return max(positions, vec4u(WINDOW - 1u)) - (WINDOW - 1u); }
fn lowest_key(batches: vec2u, query: u32, position: u32) -> u32 { return max(position, WINDOW - 1u) - (WINDOW - 1u); }

fn first_query(key: u32) -> u32 { return key; }
fn end_of_queries(batches: vec2u, start: u32, rows: u32) -> u32 { return min(p.seq, start + rows - 1u + min(WINDOW, p.seq)); }
