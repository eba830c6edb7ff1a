// Caches of keys and values below the GPU, as a rewrite of a program of generation: the rows that the attention of a layer has
// kept are brought up before its first use, and behind its last the new rows go down to them. Between two runs of a program all
// lie below. Of which layers is not decided here (engine/compile/fit.ts).
//
// Invariant: kernels, problems and their order stay; rows come back as they went. What lies in a cache past the new rows is
// anything: attention never reads there.

import { assert } from '../util/errors.ts';
import type { Tokens } from './operators/embedding.ts';
import {
  type AppendedRows,
  bytesOf,
  type Instruction,
  makeTensor,
  type Program,
  type Stash,
  type Tensor,
} from './program.ts';

/** A cache that lies below. */
export interface MovedCache {
  readonly cache: Tensor;
  readonly stash: Stash;
}

/** Programs that share a cache share what this gives for it. */
export const movedCache = (cache: Tensor): MovedCache => ({
  cache,
  stash: { name: cache.name, bytes: bytesOf(cache), lasts: true },
});

/** One in a program. */
interface CacheHere extends MovedCache {
  readonly up: Tensor;
}

/** What a run appends to a cache (1, capacity, width). */
function rowsOf(cache: Tensor, position: Tensor | undefined, { seq }: Tokens): AppendedRows {
  const [sequences, capacity = 0] = cache.shape;
  assert(sequences === 1, `${cache.name} is of one sequence`);
  assert(position, `${cache.name} is read up to a position`);
  return { position, count: seq, bytes: bytesOf(cache) / capacity };
}

export function withMovedCaches<P extends Program & { readonly tokens: Tokens }>(
  program: P,
  moved: readonly MovedCache[],
): P {
  // What stands for a cache while it is up has a place in each program, and not the same.
  const up = ({ name, shape, type }: Tensor) => makeTensor(name, shape, 'activation', type);
  const byCache = new Map(moved.map((each) => [each.cache, { ...each, up: up(each.cache) }]));
  const cachesOf = (instruction: Instruction): CacheHere[] => {
    if (instruction.op !== 'dispatch') return [];
    const found = Object.values(instruction.operands).flatMap((tensor) => byCache.get(tensor) ?? []);
    return [...new Set(found)];
  };
  const last = new Map(program.instructions.flatMap((each) => cachesOf(each).map((cache) => [cache, each] as const)));
  const isUp = new Set<CacheHere>();
  const instructions = program.instructions.flatMap((instruction): Instruction[] => {
    const caches = cachesOf(instruction);
    if (instruction.op !== 'dispatch' || caches.length === 0) return [instruction];
    const { phase, block, layer } = instruction;
    const place = { phase, ...(block !== undefined && { block }), ...(layer !== undefined && { layer }) };
    const transfer = (op: 'fetch' | 'offload', { up: tensor, stash }: CacheHere): Instruction => ({
      ...{ op, tensor, stash, rows: rowsOf(tensor, instruction.operands['position'], program.tokens), ...place },
      ...(op === 'fetch' && { keeps: true }),
      label: `${tensor.name}, moved ${op === 'fetch' ? 'back' : 'below'}`,
    });
    const before = caches.filter((cache) => !isUp.has(cache));
    for (const cache of before) isUp.add(cache);
    const operands = Object.entries(instruction.operands).map(([name, tensor]) => [
      name,
      byCache.get(tensor)?.up ?? tensor,
    ]);
    return [
      ...before.map((cache) => transfer('fetch', cache)),
      { ...instruction, operands: Object.fromEntries(operands) },
      ...caches.filter((cache) => last.get(cache) === instruction).map((cache) => transfer('offload', cache)),
    ];
  });
  return { ...program, instructions };
}
