// gives: decays, number_of
// Blocks of adamw that are some of all that train: decayMask has one word for each, whose highest bit says whether it decays,
// the others which of all it is.

@group(0) @binding(4) var<storage, read> decayMask: array<u32>;

fn decays(block: u32) -> bool { return (decayMask[block] >> 31u) != 0u; }
fn number_of(block: u32) -> u32 { return decayMask[block] & 0x7fffffffu; }
