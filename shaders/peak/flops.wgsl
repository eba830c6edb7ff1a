// needs: WORKGROUP
// What an adapter can compute at most: independent chains of multiply-adds on registers, nothing loaded.
// `factor` and `term` are parameters and every chain is written, so that nothing can be folded or dropped.
// Eight accumulators hide the latency of a multiply-add and still fit the 16 registers of a software adapter.

struct Params { rounds: u32, factor: f32, term: f32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> y: array<vec4f>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let a = p.factor;
  let b = p.term;
  var u = vec4f(f32(id.x)) + vec4f(0.0, 0.1, 0.2, 0.3);
  var v = u + 0.5;
  for (var i = 0u; i < p.rounds; i++) {
    let u1 = u * a + b; let v1 = v * a + b; // 16 floating-point operations a line
    let u2 = u1 * a + b; let v2 = v1 * a + b;
    let u3 = u2 * a + b; let v3 = v2 * a + b;
    let u4 = u3 * a + b; let v4 = v3 * a + b;
    let u5 = u4 * a + b; let v5 = v4 * a + b;
    let u6 = u5 * a + b; let v6 = v5 * a + b;
    let u7 = u6 * a + b; let v7 = v6 * a + b;
    u = u7 * a + b; v = v7 * a + b;
  }
  y[id.x] = u + v;
}
