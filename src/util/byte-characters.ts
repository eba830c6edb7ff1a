// The characters by which byte-level tokenizers write the 256 bytes: printable ones stand for themselves, the others for
// those from U+0100 on. Invariant: one character a byte, and none of them white space.

const isPrintable = (byte: number): boolean =>
  (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);

/** By byte. */
export const BYTE_CHARACTERS: readonly string[] = makeCharacters();

function makeCharacters(): string[] {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
}

/** Byte by character. */
export const CHARACTER_BYTES: ReadonlyMap<string, number> = new Map(
  BYTE_CHARACTERS.map((character, byte) => [character, byte]),
);

const encoder = new TextEncoder();

/** The bytes of a text in UTF-8, each as its character. */
export function byteCharacters(text: string): string {
  let found = '';
  for (const byte of encoder.encode(text)) found += BYTE_CHARACTERS[byte] ?? '';
  return found;
}

/** Undefined where a character stands for no byte. */
export function characterBytes(characters: string): Uint8Array<ArrayBuffer> | undefined {
  const bytes: number[] = [];
  for (const character of characters) {
    const byte = CHARACTER_BYTES.get(character);
    if (byte === undefined) return undefined;
    bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}
