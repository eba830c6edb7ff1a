// A GPU's matrix units in plain WGSL, for adapters that have none: slow, with sums over k one by one.

import units from '../shaders/matmul/subgroup_matrix_units.wgsl?raw';
import entry from '../shaders/matmul/subgroups_fixed.wgsl?raw';

/** A fragment of factors is where they lie, eight to a vec4u; of one of sums each of 32 lanes has half a row. */
export const STAND_INS = `
alias Factors = u32;
alias Sums = mat2x4f;
var<private> own: u32;

fn left_at(at: u32) -> Factors { return at; }
fn right_at(at: u32) -> Factors { return at; }

// Two steps of the sum, of a line of a fragment.
fn pair_of(at: Factors, line: u32, pair: u32) -> vec2f { return unpack2x16float(panels[at + line * ROW + pair / 4u][pair % 4u]); }

fn add_product(sums: Sums, left: Factors, right: Factors) -> Sums {
  var made = sums;
  for (var i = 0u; i < 8u; i++) {
    for (var pair = 0u; pair < 8u; pair++) {
      let products = pair_of(left, own / 2u, pair) * pair_of(right, 8u * (own % 2u) + i, pair);
      made[i / 4u][i % 4u] += products.x;
      made[i / 4u][i % 4u] += products.y;
    }
  }
  return made;
}

fn keep_sums(at: u32, sums: Sums) {
  panels[at + 2u * own] = bitcast<vec4u>(sums[0]);
  panels[at + 2u * own + 1u] = bitcast<vec4u>(sums[1]);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  own = lane % 32u;
  make_tile(group, groups, lane, lane / 32u);
}
`;

/** The shader with these in place of units, and of its entry; one without units stays as it is. */
export const withStandIns = (shader: string, standIns = STAND_INS): string => shader.replace(units + entry, standIns);
