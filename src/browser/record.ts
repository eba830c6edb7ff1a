// The record of a run in IndexedDB, read: an older page, another version or a cut-off write may have left anything there.
//
// Invariant: what `readRecord` returns can be shown, opened and removed, whatever was stored; one that is damaged says
// why, and its name where it has one.

import { RECOVERIES } from '../engine/compile/recovery.ts';
import { ORDERS } from '../memory/plan/policies.ts';
import { keptSettings } from '../train/run/run-settings.ts';
import { HoldfastError } from '../util/errors.ts';
import { check, closed, figure, number, object, oneOf, optional, parsed, type Schema, text } from '../util/json.ts';
import { realNumber, wholeNumber } from '../util/range.ts';
import type { MemorySettings, RunRecord } from './protocol.ts';

const count = number(wholeNumber(0));
const time = number(realNumber(0, 8.64e15));

const bytes = number(realNumber(0, Number.MAX_SAFE_INTEGER));

const MEMORY = {
  gpu: optional(bytes),
  host: optional(bytes),
  disk: optional(bytes),
  recovery: optional(oneOf(RECOVERIES)),
  policy: optional(oneOf(['planned', ...(Object.keys(ORDERS) as (keyof typeof ORDERS)[])])),
} satisfies Record<keyof MemorySettings, unknown>;

const record: Schema<RunRecord> = object({
  id: text,
  name: text,
  created: time,
  settings: optional(parsed(keptSettings)),
  memory: object(MEMORY),
  status: oneOf(['running', 'paused', 'stopped', 'finished', 'failed', 'imported']),
  savedStep: count,
  // Of a step that was skipped, older pages kept null.
  loss: optional(figure),
  error: optional(text),
  forkedFrom: optional(object({ id: text, name: text, step: count })),
} satisfies Record<keyof RunRecord, unknown>);

const memorySettings = closed<MemorySettings>(MEMORY);

/** Budgets that a page gave. Errors: HoldfastError naming the first that is none. */
export const readMemory = (given: unknown): MemorySettings => check(memorySettings, given, 'the memory settings');

/** Names of folders, and what Holdfast gives: nothing that leads elsewhere. */
export const isRunId = (id: unknown): id is string => typeof id === 'string' && /^[\w-]+$/.test(id);

/** What lies at `id`. */
export function readRecord(id: string, value: unknown): RunRecord {
  try {
    const found = check(record, value, 'its record');
    if (found.id !== id || !isRunId(id)) throw new HoldfastError(`its record is that of run ${found.id}`);
    return found;
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    const { name, created } = (value ?? {}) as Partial<RunRecord>;
    return {
      id,
      name: typeof name === 'string' && name !== '' ? name : `run ${id}`,
      created: typeof created === 'number' && created >= 0 && created <= 8.64e15 ? created : 0,
      memory: {},
      status: 'damaged',
      savedStep: 0,
      error: error.message,
    };
  }
}
