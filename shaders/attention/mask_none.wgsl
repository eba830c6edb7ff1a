// needs: p
// gives: seen, last_token, last_tokens, first_keys, lowest_key, first_query, end_of_queries
// No mask: a query sees every token of its row, and what the cache holds before it. See mask_causal.wgsl.

fn seen(base: u32, keys: vec4u, firsts: vec4u, lasts: vec4u) -> vec4<bool> { return keys <= lasts; }

fn last_token(query: u32) -> u32 { return p.seq - 1u; }
fn last_tokens(queries: vec4u) -> vec4u { return vec4u(p.seq - 1u); }

fn first_keys(rows: vec4u, positions: vec4u) -> vec4u { return vec4u(); }
fn lowest_key(batches: vec2u, query: u32, position: u32) -> u32 { return 0u; }

fn first_query(key: u32) -> u32 { return 0u; }
fn end_of_queries(batches: vec2u, start: u32, rows: u32) -> u32 { return p.seq; }
