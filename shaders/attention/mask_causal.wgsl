// needs: p
// gives: seen, last_token, last_tokens, first_keys, lowest_key, first_query, end_of_queries
// The causal rule: a query sees its own token and every one before. Each mask rule gives the same functions. They
// rest on this: what a query sees lies in one range of keys, and neither end of it falls from a query to the next.

// Whether key i is in the range that ends at firsts[i] and lasts[i]; base: the row of key 0.
fn seen(base: u32, keys: vec4u, firsts: vec4u, lasts: vec4u) -> vec4<bool> { return keys <= lasts; }

// The last token that a query sees: tokens and queries are counted from 0 in a row of seq.
fn last_token(query: u32) -> u32 { return query; }
fn last_tokens(queries: vec4u) -> vec4u { return queries; }

// The first key that each of four queries sees. rows: batch * seq + query; positions: of the queries among the keys.
fn first_keys(rows: vec4u, positions: vec4u) -> vec4u { return vec4u(); }

// The first key that any query from `query` on sees, in a workgroup of batches batches.x to batches.y.
fn lowest_key(batches: vec2u, query: u32, position: u32) -> u32 { return 0u; }

// The first query that sees `key` or a later key, and the first that sees none of the `rows` keys from `start` on.
fn first_query(key: u32) -> u32 { return key; }
fn end_of_queries(batches: vec2u, start: u32, rows: u32) -> u32 { return p.seq; }
