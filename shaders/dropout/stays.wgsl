// needs: splitmix32, p, key
// gives: stays
// Which elements dropout leaves: a hash of the key, the stream and the index, the same in every pass over them, whatever the grid,
// with nothing kept in between.

fn stays(at: u32) -> bool {
  return splitmix32(splitmix32(splitmix32(key[0] ^ p.stream) ^ at) ^ key[1]) >= p.threshold;
}
