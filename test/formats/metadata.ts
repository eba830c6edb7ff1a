// What the header of a safetensors file says beside its tensors.

import { headerLength, LENGTH_BYTES, parseHeader } from '../../src/formats/safetensors-header.ts';

/** Its `__metadata__`, empty where there is none. */
export function metadataOf(file: Uint8Array): Map<string, string> {
  const end = LENGTH_BYTES + headerLength(file, file.length, 'the file');
  const found = parseHeader(file.subarray(LENGTH_BYTES, end), 'the file').get('__metadata__');
  return new Map([...(found ?? [])].map(([name, value]) => [name, String(value)]));
}
