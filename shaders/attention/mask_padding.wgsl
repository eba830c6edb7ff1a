// needs: p
// gives: seen, last_token, last_tokens, first_keys, lowest_key, first_query, end_of_queries
// Padding: a query sees every token of its row that is none, before it and behind it. See mask_causal.wgsl.

@group(0) @binding(7) var<storage, read> keyMask: array<i32>;  // (batch * seq): 0 at keys that no query sees

fn seen(base: u32, keys: vec4u, firsts: vec4u, lasts: vec4u) -> vec4<bool> {
  let rows = vec4u(base) + min(keys, lasts);
  return (keys <= lasts) & (vec4i(keyMask[rows.x], keyMask[rows.y], keyMask[rows.z], keyMask[rows.w]) != vec4i());
}

fn last_token(query: u32) -> u32 { return p.seq - 1u; }
fn last_tokens(queries: vec4u) -> vec4u { return vec4u(p.seq - 1u); }

fn first_keys(rows: vec4u, positions: vec4u) -> vec4u { return vec4u(); }
fn lowest_key(batches: vec2u, query: u32, position: u32) -> u32 { return 0u; }

fn first_query(key: u32) -> u32 { return 0u; }
fn end_of_queries(batches: vec2u, start: u32, rows: u32) -> u32 { return p.seq; }
