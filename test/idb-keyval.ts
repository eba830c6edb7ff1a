// A double of idb-keyval for tests outside a browser: `vi.mock('idb-keyval', () => import('../idb-keyval.ts'))`.

export const records = new Map<string, unknown>();

export function createStore(): void {}
export const get = async (id: string) => records.get(id);
export const update = async (id: string, change: (value: unknown) => unknown) =>
  records.set(id, change(records.get(id)));
export const del = async (id: string) => records.delete(id);
export const entries = async () => [...records];
