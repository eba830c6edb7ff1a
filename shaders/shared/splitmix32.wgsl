// gives: splitmix32
// One step of splitmix32, as in util/random.ts.

fn splitmix32(word: u32) -> u32 {
  var z = word + 0x9e3779b9u;
  z = (z ^ (z >> 16u)) * 0x21f0aaadu;
  z = (z ^ (z >> 15u)) * 0x735a2d97u;
  return z ^ (z >> 15u);
}
