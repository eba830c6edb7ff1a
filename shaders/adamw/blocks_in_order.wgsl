// gives: decays, number_of
// Blocks of adamw in the order of all that train: decayMask has one bit for each, bit b % 32 of word b / 32.

@group(0) @binding(4) var<storage, read> decayMask: array<u32>;

fn decays(block: u32) -> bool { return ((decayMask[block >> 5u] >> (block & 31u)) & 1u) != 0u; }
fn number_of(block: u32) -> u32 { return block; }
