// Where activations lie: on random programs of stand-in kernels, and on the traced models. Lives are worked
// out anew here, by looking for the first and the last instruction that names a tensor.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LoraOptions } from '../../src/formats/adapter.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { liveBytes, type Placement, place } from '../../src/graph/liveness.ts';
import {
  type TensorInstruction as Instruction,
  makeTensor,
  onTensors,
  type Program,
  type Tensor,
} from '../../src/graph/program.ts';
import { type Access, type Kernel, type Operand, read, update, write } from '../../src/kernels/kernel.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { at } from '../../src/util/at.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { entry, field, leading } from '../entry.ts';

const LIMIT = 2 ** 31;

/** A kernel that is nothing but its operands. */
const fake: Kernel<{ operands: Record<string, Operand> }> = {
  name: 'fake',
  operands: ({ operands }) => operands,
  affectsSpeed: { operands: true },
  variants: [],
  flops: () => 0,
  reference() {},
};

function instruction(accesses: readonly (readonly [Tensor, Access])[]): Instruction {
  const make = { read, write, update };
  const operands = Object.fromEntries(accesses.map(([{ size }, access], i) => [`o${i}`, make[access](size)]));
  const tensors = Object.fromEntries(accesses.map(([tensor], i) => [`o${i}`, tensor]));
  return { op: 'dispatch', phase: 'forward', kernel: fake, problem: { operands }, operands: tensors, label: 'fake' };
}

/** Programs in which every instruction reads and updates what is there, some of it through two operands, and writes something new. */
const programs: fc.Arbitrary<Program> = fc
  .array(
    fc.record({
      reads: fc.array(fc.nat(), { maxLength: 4 }),
      updates: fc.array(fc.nat(), { maxLength: 1 }),
      sizes: fc.array(fc.oneof(fc.integer({ min: 1, max: 300 }), fc.integer({ min: 1, max: 20_000 })), {
        maxLength: 3,
      }),
      isOutput: fc.boolean(),
      readsTwice: fc.boolean(),
    }),
    { minLength: 1, maxLength: 40 },
  )
  .map((specs) => {
    const known: Tensor[] = [];
    const outputs: Tensor[] = [];
    const pick = (n: number) => at(known, n % known.length);
    const instructions = specs.map(({ reads, updates, sizes, isOutput, readsTwice }, i) => {
      const accesses = new Map<Tensor, Access>();
      // Mostly recent tensors, as in a chain of layers; sometimes old ones, as in a backward pass.
      for (const n of known.length > 0 ? reads : [])
        accesses.set(n % 3 ? at(known, known.length - 1 - (n % Math.min(4, known.length))) : pick(n), 'read');
      for (const n of known.length > 0 ? updates : []) if (!accesses.has(pick(n))) accesses.set(pick(n), 'update');
      const written = sizes.map((size, j) => makeTensor(`t${i}.${j}`, [size], 'activation'));
      for (const tensor of written) accesses.set(tensor, 'write');
      known.push(...written);
      if (isOutput && i % 5 === 0) outputs.push(...written.slice(0, 1));
      const again = [...accesses].filter(([, access]) => readsTwice && access === 'read').slice(0, 1);
      return instruction([...accesses, ...again]);
    });
    return { name: 'random', instructions, outputs };
  });

const roundUp = (bytes: number) => Math.ceil(bytes / 256) * 256;
const total = ({ arenas }: Placement) => arenas.reduce((a, b) => a + b, 0);

/** First and last instruction of every activation. */
function lives(program: Program): Map<Tensor, { first: number; last: number }> {
  const found = new Map<Tensor, { first: number; last: number }>();
  onTensors(program).forEach(({ operands }, i) => {
    for (const tensor of Object.values(operands)) {
      if (tensor.role === 'activation') found.set(tensor, { first: found.get(tensor)?.first ?? i, last: i });
    }
  });
  for (const output of program.outputs) {
    const life = found.get(output);
    if (life) life.last = Infinity;
  }
  return found;
}

/** Every fact that a placement must satisfy. */
function check(program: Program, placement: Placement): void {
  const { places, arenas } = placement;
  const alive = [...lives(program)];
  expect(new Set(places.keys())).toEqual(new Set(alive.map(([tensor]) => tensor)));

  const ends = arenas.map(() => 0);
  for (const [tensor, { arena, offset }] of places) {
    expect(offset % 256).toBe(0);
    expect(arenas[arena]).toBeDefined();
    ends[arena] = Math.max(ends[arena]!, offset + roundUp(tensor.size * 4));
  }
  expect(ends, 'arenas end where their last tensor does').toEqual([...arenas]);
  for (const bytes of arenas) expect(bytes).toBeLessThanOrEqual(LIMIT);

  alive.forEach(([a, lifeA], i) => {
    for (const [b, lifeB] of alive.slice(i + 1)) {
      const [placeA, placeB] = [entry(places, a), entry(places, b)];
      if (placeA.arena !== placeB.arena || lifeA.last < lifeB.first || lifeB.last < lifeA.first) continue;
      const apart =
        placeA.offset + roundUp(a.size * 4) <= placeB.offset || placeB.offset + roundUp(b.size * 4) <= placeA.offset;
      if (!apart) expect.fail(`${a.name} and ${b.name} share memory while both live`);
    }
  });

  for (const { kernel, problem, operands, label } of onTensors(program)) {
    const all = Object.values(operands);
    const inArenas = Object.entries(kernel.operands(problem))
      .map(([name, { access }]) => ({ access, tensor: field(operands, name) }))
      .map((one) => ({ ...one, arena: places.get(one.tensor)?.arena }))
      .filter(({ arena }) => arena !== undefined);
    const isTwice = (tensor: Tensor) => all.indexOf(tensor) !== all.lastIndexOf(tensor);
    const reads = new Set(inArenas.filter(({ tensor }) => isTwice(tensor)).map(({ arena }) => arena));
    const writes = inArenas.filter(({ access }) => access !== 'read').map(({ arena }) => arena);
    for (const arena of writes) if (reads.has(arena)) expect.fail(`${label} reads twice and writes in arena ${arena}`);
  }
  expect(total(placement)).toBeGreaterThanOrEqual(liveBytes(program));
}

describe('random programs', () => {
  it('are placed so that every fact holds', () => {
    fc.assert(
      fc.property(programs, (program) => check(program, place(program, LIMIT))),
      { numRuns: 300, seed: 1 },
    );
  });

  it('are placed the same each time', () => {
    fc.assert(
      fc.property(programs, (program) => {
        expect(place(program, LIMIT)).toEqual(place(program, LIMIT));
      }),
      { numRuns: 30, seed: 2 },
    );
  });

  it('respect the largest buffer, or say that a tensor is larger', () => {
    fc.assert(
      fc.property(programs, fc.integer({ min: 1, max: 40 }), (program, blocks) => {
        const limit = blocks * 2048;
        const largest = Math.max(0, ...[...lives(program).keys()].map(({ size }) => roundUp(size * 4)));
        if (largest > limit) expect(() => place(program, limit)).toThrow(HoldfastError);
        else for (const bytes of place(program, limit).arenas) expect(bytes).toBeLessThanOrEqual(limit);
      }),
      { numRuns: 100, seed: 3 },
    );
  });

  it('use what stays as well, which no buffer holds where it is larger than one may be', () => {
    const table = makeTensor('table', [8, 64], 'persistent');
    const out = makeTensor('out', [64], 'activation');
    const instructions = [
      instruction([
        [table, 'read'],
        [out, 'write'],
      ]),
    ];
    const program: Program = { name: 'test', instructions, outputs: [out] };
    expect(place(program, 2048).arenas).toEqual([256]);
    expect(() => place(program, 2047)).toThrow(
      new HoldfastError('"table" needs 2048 bytes, this adapter allows 2047 a buffer; use a smaller batch or context'),
    );
  });
});

describe('small programs', () => {
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((name) => makeTensor(name, [64], 'activation')) as [
    Tensor,
    Tensor,
    Tensor,
    Tensor,
  ];
  const chain = [
    instruction([[a, 'write']]),
    instruction([
      [a, 'read'],
      [b, 'write'],
    ]),
    instruction([
      [b, 'read'],
      [c, 'write'],
    ]),
    instruction([
      [c, 'read'],
      [d, 'write'],
    ]),
  ];

  it('a chain takes one arena of two tensors', () => {
    const program = { name: 'chain', instructions: chain, outputs: [] };
    expect(place(program, LIMIT).arenas).toEqual([512]);
    expect(liveBytes(program)).toBe(512);
  });

  it('what is read through two operands lies in another arena than what is written', () => {
    const square = instruction([
      [a, 'read'],
      [a, 'read'],
      [b, 'write'],
    ]);
    const program = { name: 'square', instructions: [...leading(1, chain), square], outputs: [] };
    expect(place(program, LIMIT).arenas).toEqual([256, 256]);
  });

  it('an output keeps its bytes to the end', () => {
    const program = { name: 'chain', instructions: chain, outputs: [a] };
    const { places, arenas } = place(program, LIMIT);
    check(program, { places, arenas });
    expect(arenas.reduce((x, y) => x + y)).toBe(768);
  });

  it('a read before any write is our own mistake', () => {
    const program = { name: 'wrong', instructions: chain.slice(1), outputs: [] };
    expect(() => place(program, LIMIT)).toThrow(/internal: .* reads a before anything wrote it/);
  });

  it('so is reading and writing one tensor through two operands', () => {
    const operands = { x: read(64), y: update(64) };
    const [start] = leading(1, chain);
    const both = { ...start, problem: { operands }, operands: { x: a, y: a }, label: 'both' };
    expect(() => place({ name: 'wrong', instructions: [start, both], outputs: [] }, LIMIT)).toThrow(
      /internal: both reads and writes a/,
    );
  });
});

describe('traced models', () => {
  const gpt2 = { model_type: 'gpt2', vocab_size: 256, n_positions: 128, n_embd: 64, n_head: 4, n_layer: 4 };
  const llama = {
    model_type: 'llama',
    vocab_size: 256,
    hidden_size: 64,
    intermediate_size: 172,
    num_hidden_layers: 4,
    num_attention_heads: 8,
    num_key_value_heads: 2,
  };
  const models: [string, object, LoraOptions?][] = [
    ['gpt2', gpt2],
    ['gpt2, large vocabulary', { ...gpt2, vocab_size: 50257 }],
    ['gpt2, 12 layers', { ...gpt2, n_layer: 12 }],
    ['gpt2 with lora', gpt2, { rank: 4, alpha: 8 }],
    ['llama', llama],
    ['llama with lora on two linears', llama, { rank: 8, targets: ['q_proj', 'down_proj'], dropout: 0.1 }],
    ['llama, tied, 12 layers', { ...llama, tie_word_embeddings: true, num_hidden_layers: 12 }],
  ];

  // The bound is the most bytes alive at once. It ignores that what attention reads as queries, keys and values lies in another
  // arena than what it writes, which is most of what an evaluation of one layer holds.
  const MOST = { training: 1.05, evaluation: 1.15 };
  it.each(models)('%s', (_, config, lora) => {
    const base = makeModel(parseConfig(config, 'test'));
    const model = lora ? withLora(base, lora) : base;
    const { first, next, evaluate } = traceStep(model, 4, 64);
    const programs = [first, next, evaluate];
    for (const program of programs) {
      const placement = place(program, LIMIT);
      check(program, placement);
      expect(total(placement) / liveBytes(program), program.name).toBeLessThan(
        program === evaluate ? MOST.evaluation : MOST.training,
      );
    }
    // All programs share one set of arenas, each as large as its largest use: evaluation comes for free.
    const sizes: number[] = [];
    for (const program of programs) {
      place(program, LIMIT).arenas.forEach((bytes, i) => {
        sizes[i] = Math.max(sizes[i] ?? 0, bytes);
      });
    }
    const shared = sizes.reduce((a, b) => a + b, 0);
    expect(shared / Math.max(...programs.map(liveBytes)), 'shared arenas').toBeLessThan(MOST.training);
  });
});
