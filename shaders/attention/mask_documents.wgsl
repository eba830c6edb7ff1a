// needs: p
// gives: seen, last_token, last_tokens, first_keys, lowest_key, first_query, end_of_queries
// Causal within documents: a query sees its own token and those before in the same document, or the nearest of these alone
// (a window): those from its operand on. See mask_causal.wgsl.

@group(0) @binding(7) var<storage, read> documentStarts: array<u32>;  // (batch * seq): the first key that each query sees, never falling in a row

fn seen(base: u32, keys: vec4u, firsts: vec4u, lasts: vec4u) -> vec4<bool> { return (keys >= firsts) & (keys <= lasts); }

fn last_token(query: u32) -> u32 { return query; }
fn last_tokens(queries: vec4u) -> vec4u { return queries; }

fn first_keys(rows: vec4u, positions: vec4u) -> vec4u {
  return min(positions, vec4u(documentStarts[rows.x], documentStarts[rows.y], documentStarts[rows.z], documentStarts[rows.w]));
}

// One for all batches of the workgroup: its lanes must loop alike.
fn lowest_key(batches: vec2u, query: u32, position: u32) -> u32 {
  var lowest = position;
  for (var b = batches.x; b <= batches.y; b++) { lowest = min(lowest, documentStarts[b * p.seq + query]); }
  return lowest;
}

fn first_query(key: u32) -> u32 { return key; }
fn end_of_queries(batches: vec2u, start: u32, rows: u32) -> u32 {
  var query = start + rows;
  while (query < p.seq && lowest_key(batches, query, query) < start + rows) { query += rows; }
  return query;
}
