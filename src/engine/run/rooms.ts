// Rooms of one size in host memory.

type Bytes = Uint8Array<ArrayBuffer>;

export interface Rooms {
  /** Of each. */
  bytes: number;
  /** How many there are. */
  count: number;
  free: Bytes[];
}

export const noRooms = (): Rooms => ({ bytes: 0, count: 0, free: [] });

/** At least so many, of so many bytes at least. Where they are too small, nothing may lie in them. */
export function growTo(rooms: Rooms, { bytes, most }: { readonly bytes: number; readonly most: number }): void {
  if (bytes > rooms.bytes) Object.assign(rooms, { bytes, count: 0, free: [] });
  for (; rooms.count < most; rooms.count++) rooms.free.push(new Uint8Array(rooms.bytes));
}
