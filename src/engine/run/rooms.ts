// Rooms of one size in host memory, made when they are first needed.

type Bytes = Uint8Array<ArrayBuffer>;

export interface Rooms {
  /** Of each. */
  bytes: number;
  /** That there may be. */
  most: number;
  made: number;
  free: Bytes[];
}

export const noRooms = (): Rooms => ({ bytes: 0, most: 0, made: 0, free: [] });

/** Where they are too small, nothing may lie in them. */
export function growTo(rooms: Rooms, { bytes, most }: Pick<Rooms, 'bytes' | 'most'>): void {
  rooms.most = Math.max(rooms.most, most);
  if (bytes <= rooms.bytes) return;
  rooms.bytes = bytes;
  rooms.made = 0;
  rooms.free = [];
}

/** Undefined where none is free. */
export function take(rooms: Rooms): Bytes | undefined {
  const room = rooms.free.pop();
  if (room || rooms.made === rooms.most) return room;
  rooms.made++;
  return new Uint8Array(rooms.bytes);
}
