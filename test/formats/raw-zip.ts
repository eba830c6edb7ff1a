// Zips made by hand, field by field, so that any of them can lie. Not a writer of good zips: fflate's are those of
// another program.

import { crc32, deflateRawSync } from 'node:zlib';

export interface RawEntry {
  readonly name: string;
  /** As it lies in the zip. */
  readonly data: Uint8Array;
  /** 0: stored, 8: deflated. */
  readonly method?: number;
  /** What it says of the bytes that come out: as many as `data` has, its checksum. */
  readonly bytes?: number;
  readonly crc?: number;
  /** Sizes and place in the 64-bit extra field, 0xffffffff in their own. */
  readonly zip64?: boolean;
  readonly externalAttributes?: number;
}

/** A file that is compressed, and says of itself what is true. */
export function deflated(name: string, content: Uint8Array): RawEntry {
  return { name, data: deflateRawSync(content), method: 8, bytes: content.length, crc: crc32(content) };
}

/** `zip64`: the end of the table in its 64-bit form. */
export function rawZip(entries: readonly RawEntry[], { zip64 = false } = {}): Uint8Array {
  const parts: Uint8Array[] = [];
  const table: Uint8Array[] = [];
  let at = 0;
  for (const entry of entries) {
    const { data, method = 0, bytes = data.length, crc = crc32(data), externalAttributes = 0 } = entry;
    const name = new TextEncoder().encode(entry.name);
    const size = (value: number) => u32(entry.zip64 ? 0xffffffff : value);
    const long = entry.zip64 ? [u16(1), u16(24), u64(bytes), u64(data.length), u64(at)] : [];
    const localLong = entry.zip64 ? [u16(1), u16(16), u64(bytes), u64(data.length)] : [];
    const common = [u16(45), u16(0x800), u16(method), u32(0), u32(crc), size(data.length), size(bytes)];
    const header = join([u32(0x04034b50), ...common, u16(name.length), u16(entry.zip64 ? 20 : 0), name, ...localLong]);
    const lengths = [u16(name.length), u16(entry.zip64 ? 28 : 0), u16(0)];
    const rest = [u16(0), u16(0), u32(externalAttributes), size(at), name, ...long];
    table.push(join([u32(0x02014b50), u16(0x031e), ...common, ...lengths, ...rest]));
    parts.push(header, data);
    at += header.length + data.length;
  }
  const directory = join(table);
  const end64 = [u64(entries.length), u64(entries.length), u64(directory.length), u64(at)];
  const long = zip64
    ? [u32(0x06064b50), u64(44), u16(45), u16(45), u32(0), u32(0), ...end64].concat([
        u32(0x07064b50),
        u32(0),
        u64(at + directory.length),
        u32(1),
      ])
    : [];
  const count = u16(zip64 ? 0xffff : entries.length);
  const places = zip64 ? [u32(0xffffffff), u32(0xffffffff)] : [u32(directory.length), u32(at)];
  return join([...parts, directory, ...long, u32(0x06054b50), u16(0), u16(0), count, count, ...places, u16(0)]);
}

const u16 = (value: number) => new Uint8Array(Uint16Array.of(value).buffer);
const u32 = (value: number) => new Uint8Array(Uint32Array.of(value).buffer);
const u64 = (value: number) => new Uint8Array(BigUint64Array.of(BigInt(value)).buffer);

export function join(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
