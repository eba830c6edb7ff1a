// gives: kept, kept_of, values_of
// Columns of B in a panel, as the halves that they are where B is stored so: a quarter less to read from workgroup memory. Some GPUs
// multiply a half and a float in one instruction, others widen it first.

alias kept = vec2u;

fn kept_of(values: vec4f) -> kept { return vec2u(pack2x16float(values.xy), pack2x16float(values.zw)); }
fn values_of(columns: kept) -> vec4f { return vec4f(unpack2x16float(columns.x), unpack2x16float(columns.y)); }
