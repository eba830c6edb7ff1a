// Readers of safetensors and of JSON in Python that share nothing with ours, for tests of what others find in our files.

import { execFileSync, spawnSync } from 'node:child_process';

export const hasPython = spawnSync('python3', ['--version']).status === 0;

/** Reads the tensors of a name with nothing but the format's definition, and prints what it finds. */
const READER = `
import hashlib, json, os, struct, sys
folder, whole = sys.argv[1:]
index = os.path.join(folder, whole + '.index.json')
places = json.load(open(index))['weight_map'] if os.path.exists(index) else None
found = {}
for shard in sorted(set(places.values())) if places else [whole]:
    data = open(os.path.join(folder, shard), 'rb').read()
    (length,) = struct.unpack('<Q', data[:8])
    header = json.loads(data[8:8 + length])
    assert header.pop('__metadata__', None) == ({'format': 'pt'} if whole.startswith(('model', 'adapter_model')) else None)
    assert (8 + length) % 8 == 0
    for name, tensor in header.items():
        assert places is None or places[name] == shard
        begin, end = tensor['data_offsets']
        raw = data[8 + length + begin:8 + length + end]
        dtype = tensor['dtype']
        if dtype == 'F32':
            floats = struct.unpack('<%df' % (len(raw) // 4), raw)
        elif dtype == 'F16':
            floats = struct.unpack('<%de' % (len(raw) // 2), raw)
        else:
            halves = struct.unpack('<%dH' % (len(raw) // 2), raw)
            floats = [struct.unpack('<f', struct.pack('<I', half << 16))[0] for half in halves]
        sums = hashlib.sha256(struct.pack('<%df' % len(floats), *floats)).hexdigest()
        found[name] = [dtype, tensor['shape'], sums]
print(json.dumps(found))
`;

/** By name: the type, the shape, and the SHA-256 of the values as float32. `whole`: the file, or that of which there are shards. */
export const readByPython = (
  folder: string,
  whole = 'model.safetensors',
): Record<string, [dtype: string, shape: number[], sha256: string]> =>
  JSON.parse(execFileSync('python3', ['-c', READER, folder, whole], { encoding: 'utf8' }));

/** Reads an object, refuses what JSON does not have or has twice, and prints the types and the values of its fields. */
const JSON_READER = `
import json, sys
def refuse(constant): raise ValueError(constant)
def once(pairs):
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)
read = json.load(open(sys.argv[1], encoding='utf-8'), parse_constant=refuse, object_pairs_hook=once)
print(json.dumps({name: [type(value).__name__, value] for name, value in read.items()}))
`;

/** The fields of a JSON file as Python has them: 2 is an int, 2.0 a float. */
export const jsonByPython = (path: string): Record<string, [type: string, value: unknown]> =>
  JSON.parse(execFileSync('python3', ['-c', JSON_READER, path], { encoding: 'utf8' }));
