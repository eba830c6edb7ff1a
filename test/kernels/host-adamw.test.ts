// AdamW on the host equals, to the bit, its arithmetic with every operation rounded to f32; and it is the kernel's, which may
// round otherwise by an ulp.

import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { adamw, adamwNarrowMoments } from '../../src/kernels/adamw.ts';
import {
  HostAdamW,
  type HostScalars,
  type HostValues,
  type HostWidths,
  hostAdamWReference,
  sweepBelow,
} from '../../src/kernels/host-adamw.ts';
import { keyNumbers, roundMoments } from '../../src/kernels/moments.ts';
import { HYPER, ROUNDING, STATE } from '../../src/kernels/step-control.ts';
import { BLOCK } from '../../src/kernels/sum-squares.ts';
import { WasmHeap } from '../../src/kernels/wasm-heap.ts';
import { MOMENT_DTYPES, TRAINING_DTYPES } from '../../src/memory/layout/kinds.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { narrowFloats, widen } from '../../src/values/floats.ts';
import { lowerHalves, upperHalves } from '../../src/values/split-floats.ts';
import { field } from '../entry.ts';
import { runKernel, runnable, testDevice } from '../harness.ts';
import { UPDATE_ULP, ulpOf } from './rounding.ts';

const KINDS = ['parameter', 'gradient', 'moment1', 'moment2'] as const;

const normals = (random: Random, size: number, scale: number) =>
  Float32Array.from({ length: size }, () => scale * random.normal());

/** Zeros of both signs, subnormals, and values of every size. */
function someValues(random: Random, size: number): Float32Array<ArrayBuffer> {
  const odd = [0, -0, 2 ** -149, -(2 ** -130), 2 ** -126, 2 ** -101, 1e-20, -1e-12, 3e8];
  return normals(random, size, 0.3).map((value) => (random.below(3) === 0 ? at(odd, random.below(odd.length)) : value));
}

function someCase(size: number, firstBlock: number, seed: number, updates = 3) {
  const random = new Random(seed, 'host adamw');
  const floats = Object.fromEntries(KINDS.map((kind) => [kind, someValues(random, size)])) as Record<
    (typeof KINDS)[number],
    Float32Array<ArrayBuffer>
  >;
  floats.moment2 = floats.moment2.map(Math.abs);
  const hyper = new Float32Array(HYPER.size);
  hyper.set([1e-3, 1 - 0.9, 1 - 0.95, 1e-8, 0.1, 1, 1]);
  const state = new Float32Array(STATE.size);
  state[STATE.correction1] = 1 - 0.9 ** updates;
  state[STATE.correction2] = 1 - 0.95 ** updates;
  state[STATE.coefficient] = 0.37;
  state[STATE.updates] = updates;
  const words = Math.ceil((firstBlock + Math.ceil(size / BLOCK)) / 32);
  const decayMask = Uint32Array.from({ length: words }, () => random.uint32());
  return { floats, scalars: { hyper, state, decayMask } satisfies HostScalars, extent: { size, firstBlock } };
}

/** Copies, a little behind the start of their buffers. */
function bytesOf(
  floats: Readonly<Record<(typeof KINDS)[number], Float32Array<ArrayBuffer>>>,
  heap?: WasmHeap,
): HostValues {
  return Object.fromEntries(
    KINDS.map((kind) => {
      if (heap) {
        const bytes = heap.allocate(field(floats, kind).byteLength);
        bytes.set(new Uint8Array(field(floats, kind).buffer));
        return [kind, bytes];
      }
      const values = new Float32Array(field(floats, kind).length + 3);
      values.set(field(floats, kind), 3);
      return [kind, new Uint8Array(values.buffer, 12)];
    }),
  ) as unknown as HostValues;
}

const same = (a: Uint8Array, b: Uint8Array) => a.length === b.length && a.every((byte, i) => byte === b[i]);

describe('AdamW on the host', () => {
  const host = new HostAdamW();
  const heap = WasmHeap.make();
  const inHeap = new HostAdamW(heap);

  it('equals its reference to the bit, whatever the size, the decay and the step', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 40 * BLOCK }),
        fc.nat(70),
        fc.nat(),
        fc.constantFrom(1, 3, 64, 1000, 64_000),
        (size, firstBlock, seed, updates) => {
          const { floats, scalars, extent } = someCase(size, firstBlock, seed, updates);
          const [found, wanted, inPlace] = [bytesOf(floats), bytesOf(floats), bytesOf(floats, heap)];
          // Several steps: what one leaves, the next one takes.
          for (let step = 0; step < 3; step++) {
            host.update(found, extent, scalars);
            inHeap.update(inPlace, extent, scalars);
            hostAdamWReference(wanted, extent, scalars);
          }
          for (const kind of KINDS) {
            expect(same(found[kind], wanted[kind]), kind).toBe(true);
            expect(same(inPlace[kind], wanted[kind]), `${kind}, in place`).toBe(true);
          }
        },
      ),
      { seed: 3, numRuns: 60 },
    );
  });

  it('changes nothing when the step is skipped, and nothing behind its range', () => {
    const { floats, scalars } = someCase(600, 0, 1);
    const found = bytesOf(floats);
    host.update(found, { size: 600, firstBlock: 0 }, { ...scalars, state: scalars.state.with(STATE.skip, 1) });
    for (const kind of KINDS) expect(same(found[kind], bytesOf(floats)[kind])).toBe(true);
    host.update(found, { size: 257, firstBlock: 0 }, scalars);
    for (const kind of KINDS) {
      expect(same(found[kind].subarray(4 * 257), bytesOf(floats)[kind].subarray(4 * 257))).toBe(true);
    }
    expect(same(found.parameter, bytesOf(floats).parameter)).toBe(false);
  });

  it('leaves no subnormal moment, in steps that the number of updates decides', () => {
    const { scalars } = someCase(BLOCK, 0, 1);
    const swept = Array.from({ length: 200 }, (_, updates) =>
      sweepBelow({ ...scalars, state: scalars.state.with(STATE.updates, updates) }),
    );
    expect(swept.flatMap((least, updates) => (least === undefined ? [] : [updates]))).toEqual([0, 64, 128, 192]);
    // A moment that decays reaches subnormals only where no sweep comes: 742 steps from 1e-4.
    const values = bytesOf({
      parameter: new Float32Array(BLOCK).fill(1),
      gradient: new Float32Array(BLOCK),
      moment1: new Float32Array(BLOCK).fill(1e-4),
      moment2: new Float32Array(BLOCK).fill(1e-8),
    });
    for (let updates = 1; updates <= 2000; updates++) {
      host.update(
        values,
        { size: BLOCK, firstBlock: 0 },
        { ...scalars, state: scalars.state.with(STATE.updates, updates) },
      );
      for (const { buffer } of [values.moment1, values.moment2]) {
        const value = Math.abs(at(new Float32Array(buffer, 12), 7));
        if (value !== 0 && value < 2 ** -126) expect.fail(`${value} after ${updates} updates`);
      }
    }
    expect(at(new Float32Array(values.moment1.buffer, 12), 7)).toBe(0);
  });
});

test('AdamW on the GPU agrees with the host’s to an ulp of each value', async () => {
  const { software } = (await testDevice()).traits;
  const size = 9 * BLOCK + 5;
  const random = new Random(5, 'host and gpu');
  const { scalars, extent } = someCase(size, 3, 5);
  const floats = {
    parameter: normals(random, size, 0.3),
    gradient: normals(random, size, 0.1),
    moment1: normals(random, size, 0.1),
    moment2: normals(random, size, 1).map((value) => value * value + 1e-4),
  };
  const values = bytesOf(floats);
  new HostAdamW().update(values, extent, scalars);
  for (const variant of await runnable(adamw)) {
    const { parameter, gradient, moment1: m, moment2: v } = floats;
    const data = { parameter, gradient, m, v, ...scalars };
    const found = await runKernel(adamw, variant, { size, maskOffset: extent.firstBlock }, data);
    for (const [kind, name] of [
      ['parameter', 'parameter'],
      ['moment1', 'm'],
      ['moment2', 'v'],
    ] as const) {
      const onHost = new Float32Array(values[kind].buffer, 12);
      field(found, name).forEach((value, i) => {
        // A sum near zero has the error of what was added.
        const before = at(field(floats, kind), i);
        const ulp = ulpOf(Math.max(Math.abs(value), Math.abs(before)));
        const allowed = ulp + (software || kind !== 'parameter' ? 0 : UPDATE_ULP * ulpOf(Math.abs(value - before)));
        const off = Math.abs(value - at(onHost, i));
        if (!(off <= allowed))
          expect.fail(`${variant.name} ${kind} ${i}: ${value}, of ${before}, is not ${at(onHost, i)}`);
      });
    }
  }
});

const KEY = [0x12345678, 0xfedcba98] as const;

/** A case with moments in bf16, which lie behind a few others. */
function narrowCase(size: number, firstBlock: number, seed: number, updates: number) {
  const found = someCase(size, firstBlock, seed, updates);
  const hyper = new Float32Array(ROUNDING.size);
  hyper.set(found.scalars.hyper);
  hyper.set(keyNumbers(KEY), ROUNDING.roundingKey);
  const halvesOf = (floats: Float32Array<ArrayBuffer>) => {
    const halves = new Uint16Array(floats.length);
    narrowFloats('BF16', floats, halves);
    return halves;
  };
  const { parameter, gradient, moment1, moment2 } = found.floats;
  const moments = [halvesOf(moment1), halvesOf(moment2)] as const;
  return { ...found, scalars: { ...found.scalars, hyper }, parameter, gradient, moments };
}

type Halves = Uint16Array<ArrayBuffer>;
const halvesLike = (
  floats: Float32Array<ArrayBuffer>,
  fill: (floats: Float32Array<ArrayBuffer>, into: Halves) => void,
) => {
  const halves = new Uint16Array(floats.length);
  fill(floats, halves);
  return halves;
};
const nearest = (dtype: 'BF16' | 'F16') => (floats: Float32Array<ArrayBuffer>) =>
  halvesLike(floats, (from, into) => narrowFloats(dtype, from, into));
const floatsOf = (dtype: 'BF16' | 'F16', halves: Halves) => {
  const floats = new Float32Array(halves.length);
  widen(dtype, halves, floats);
  return floats;
};

/** How the values of AdamW lie where parameters are computed with in this, and what their gradients are then. */
const STORED: Record<
  HostWidths['dtype'],
  {
    parameters(floats: Float32Array<ArrayBuffer>): { parameter: ArrayBufferView; beside?: ArrayBufferView };
    gradients(floats: Float32Array<ArrayBuffer>): { stored: ArrayBufferView; read: Float32Array<ArrayBuffer> };
  }
> = {
  f32: {
    parameters: (floats) => ({ parameter: floats }),
    gradients: (floats) => ({ stored: floats, read: floats }),
  },
  bf16: {
    parameters: (floats) => ({ parameter: halvesLike(floats, upperHalves), beside: halvesLike(floats, lowerHalves) }),
    gradients: (floats) => {
      const stored = nearest('BF16')(floats);
      return { stored, read: floatsOf('BF16', stored) };
    },
  },
  f16: {
    parameters: (floats) => ({ parameter: floats, beside: nearest('F16')(floats) }),
    gradients: (floats) => {
      // Infinite ones skip the step.
      const stored = nearest('F16')(floats.map((value) => Math.max(-65504, Math.min(65504, value))));
      return { stored, read: floatsOf('F16', stored) };
    },
  },
};

const NARROW_WIDTHS = (['f32', 'bf16', 'f16'] as const)
  .flatMap((dtype) => (['f32', 'bf16'] as const).map((momentDtype): HostWidths => ({ dtype, momentDtype })))
  .filter(({ dtype, momentDtype }) => dtype !== 'f32' || momentDtype !== 'f32');

describe.each(NARROW_WIDTHS)('AdamW on the host, of parameters in $dtype, with moments in $momentDtype', (widths) => {
  const BEFORE = 512;

  it('equals its reference, narrowed, to the bit, wherever the values begin', () => {
    const heap = WasmHeap.make();
    const { dtype, momentDtype: kept } = widths;
    const { parameters, gradients } = STORED[dtype];
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 40 * (BLOCK / 4) }),
        fc.nat(70),
        fc.nat(),
        fc.constantFrom(1, 64),
        (quads, firstBlock, seed, updates) => {
          const size = 4 * quads;
          const { floats, parameter, gradient, moments, scalars } = narrowCase(size, firstBlock, seed, updates);
          const { stored, read } = gradients(gradient);
          const wide: readonly ArrayBufferView[] = kept === 'f32' ? [floats.moment1, floats.moment2] : moments;
          const isNarrow = (view: ArrayBufferView) => view instanceof Uint16Array;
          const valuesIn = (allocate: (bytes: number) => Uint8Array<ArrayBuffer>): HostValues => {
            const place = (view: ArrayBufferView) => {
              const before = isNarrow(view) ? 2 * BEFORE : 0;
              const found = allocate(before + view.byteLength);
              found.set(new Uint8Array(view.buffer), before);
              return found;
            };
            const { beside, ...own } = parameters(parameter.slice());
            return {
              ...{ parameter: place(own.parameter), gradient: place(stored) },
              ...{ moment1: place(at(wide, 0)), moment2: place(at(wide, 1)) },
              ...(beside && { beside: place(beside) }),
            };
          };
          const all = [valuesIn((bytes) => new Uint8Array(bytes))];
          if (heap) all.push(valuesIn((bytes) => heap.allocate(bytes)));
          const wanted = bytesOf({ parameter, gradient: read, moment1: floats.moment1, moment2: floats.moment2 });
          const floatsIn = (bytes: Uint8Array) => new Float32Array(bytes.slice().buffer);
          for (let step = 0; step < 3; step++) {
            for (const values of all)
              new HostAdamW(values === all[0] ? undefined : heap).update(
                ...[values, { size, firstBlock, firstNarrow: BEFORE, widths }, scalars],
              );
            if (kept === 'bf16')
              [wanted.moment1, wanted.moment2].forEach((bytes, i) => {
                bytes.set(new Uint8Array(floatsOf('BF16', at(moments, i)).buffer));
              });
            hostAdamWReference(wanted, { size, firstBlock }, scalars);
            if (kept === 'bf16')
              roundMoments(KEY, firstBlock * BLOCK, [floatsIn(wanted.moment1), floatsIn(wanted.moment2)], moments);
          }
          const found = parameters(floatsIn(wanted.parameter));
          const expected: Partial<Record<keyof HostValues, ArrayBufferView>> = {
            ...{ ...found, gradient: stored },
            moment1: kept === 'bf16' ? moments[0] : floatsIn(wanted.moment1),
            moment2: kept === 'bf16' ? moments[1] : floatsIn(wanted.moment2),
          };
          for (const values of all) {
            expect(Object.keys(values).sort()).toEqual(Object.keys(expected).sort());
            for (const [operand, view] of Object.entries(expected)) {
              const bytes = values[operand as keyof HostValues] as Uint8Array;
              const before = isNarrow(view) ? 2 * BEFORE : 0;
              expect(same(bytes.subarray(before), new Uint8Array(view.buffer)), operand).toBe(true);
              expect(bytes.subarray(0, before).every((byte) => byte === 0)).toBe(true);
            }
          }
        },
      ),
      { seed: 4, numRuns: 30 },
    );
  });

  it('changes nothing where the step is skipped', () => {
    const { parameter, gradient, moments, scalars } = narrowCase(BLOCK, 0, 1, 3);
    const views = {
      ...STORED[widths.dtype].parameters(parameter),
      gradient: STORED[widths.dtype].gradients(gradient).stored,
    };
    const bytesIn = (view: ArrayBufferView) => new Uint8Array(view.buffer.slice(0) as ArrayBuffer);
    const own: readonly ArrayBufferView[] = widths.momentDtype === 'bf16' ? moments : [parameter, parameter];
    const values = Object.fromEntries(
      Object.entries({ ...views, moment1: at(own, 0), moment2: at(own, 1) }).map(([name, view]) => [
        name,
        bytesIn(view),
      ]),
    ) as unknown as HostValues;
    const before = structuredClone(values);
    const skipping = { ...scalars, state: scalars.state.with(STATE.skip, 1) };
    new HostAdamW().update(values, { size: BLOCK, firstBlock: 0, widths }, skipping);
    expect(values).toEqual(before);
    new HostAdamW().update(values, { size: BLOCK, firstBlock: 0, widths }, scalars);
    expect(values).not.toEqual(before);
  });
});

it('makes of any float the binary16 that is nearest', () => {
  // A step of no size leaves parameters as they are, and makes their copies.
  const size = 2 ** 16;
  const random = new Random(8, 'binary16');
  const edges = [
    0x33000000, 0x33000001, 0x337fffff, 0x387fc000, 0x387fe000, 0x38800000, 0x477fefff, 0x477ff000, 0x7f800000,
  ];
  const bits = Uint32Array.from({ length: size }, (_, i) => {
    if (i < 4 * edges.length) return (at(edges, i >> 2) | ((i & 1) << 31)) + ((i >> 1) & 1);
    // Of the sizes that binary16 has, and of all.
    return i % 2 === 0 ? random.uint32() : (random.uint32() & 0x8fffffff) + (0x30000000 + ((i >> 1) % 3) * 0x8000000);
  });
  const parameter = new Float32Array(bits.buffer);
  const { scalars } = narrowCase(BLOCK, 0, 1, 3);
  const hyper = scalars.hyper.with(HYPER.learningRate, 0);
  const decayMask = new Uint32Array(size / BLOCK / 32 + 1);
  const copy = new Uint16Array(size);
  const values: HostValues = {
    ...{ parameter: new Uint8Array(parameter.slice().buffer), beside: new Uint8Array(copy.buffer) },
    ...{ gradient: new Uint8Array(2 * size), moment1: new Uint8Array(4 * size), moment2: new Uint8Array(4 * size) },
  };
  const widths = { dtype: 'f16', momentDtype: 'f32' } as const;
  new HostAdamW().update(values, { size, firstBlock: 0, widths }, { ...scalars, hyper, decayMask });
  const wanted = nearest('F16')(parameter);
  wanted.forEach((half, i) => {
    const isNaNs = Number.isNaN(at(parameter, i));
    if (isNaNs ? (at(copy, i) & 0x7fff) <= 0x7c00 : half !== at(copy, i))
      expect.fail(`${at(bits, i).toString(16)}: ${at(copy, i).toString(16)} is not ${half.toString(16)}`);
  });
});

describe('AdamW on the host with moments in bf16', () => {
  it('rounds as the GPU does', async () => {
    const size = 9 * BLOCK + 4;
    const { scalars, extent, parameter, gradient, moments } = narrowCase(size, 3, 5, 3);
    // Nothing that arithmetic may flush.
    const random = new Random(6, 'host and gpu');
    for (const values of [parameter, gradient]) values.set(normals(random, size, 0.3));
    moments[0].fill(0x3dcd);
    moments[1].fill(0x3e80);
    const bytesIn = ({ buffer }: Float32Array | Uint16Array) => new Uint8Array(buffer.slice(0) as ArrayBuffer);
    const values = {
      ...{ parameter: bytesIn(parameter), gradient: bytesIn(gradient) },
      ...{ moment1: bytesIn(moments[0]), moment2: bytesIn(moments[1]) },
    };
    new HostAdamW().update(values, { ...extent, widths: { dtype: 'f32', momentDtype: 'bf16' } }, scalars);
    const words = (halves: Uint16Array) => new Uint32Array(halves.buffer);
    const data = { ...scalars, parameter, gradient, m: words(moments[0]), v: words(moments[1]) };
    for (const variant of await runnable(adamwNarrowMoments)) {
      const problem = { size, maskOffset: extent.firstBlock };
      const found = await runKernel(adamwNarrowMoments, variant, problem, data);
      for (const [name, bytes] of [
        ['m', values.moment1],
        ['v', values.moment2],
      ] as const) {
        const [here, there] = [new Uint16Array(field(found, name).buffer), new Uint16Array(bytes.buffer)];
        // Floats that are an ulp apart are rounded apart in one of 2^16 cases, by one step.
        const apart = [...there].flatMap((half, i) => (half === here[i] ? [] : [Math.abs(half - at(here, i))]));
        expect(apart.length, name).toBeLessThanOrEqual(2);
        expect(apart.every((steps) => steps === 1)).toBe(true);
      }
    }
  });
});

const EVERY_WIDTH = TRAINING_DTYPES.flatMap((dtype) =>
  MOMENT_DTYPES.map((momentDtype) => ({ dtype, momentDtype }) satisfies HostWidths),
);

test.each(EVERY_WIDTH)('new values beside the old ones are those in place, which stay: %o', (widths) => {
  const size = 41 * BLOCK;
  const random = new Random(9, 'beside');
  const { scalars } = narrowCase(size, 0, 9, 64);
  const heap = WasmHeap.make();
  for (const where of [undefined, heap]) {
    // Behind what begins the chunk of another index, of sixteen bits.
    const part = (bytes: number) => where?.allocate(bytes) ?? new Uint8Array(bytes);
    const floats = () => new Uint8Array(someValues(random, size).buffer).slice();
    const halves = () =>
      new Uint8Array(Uint16Array.from({ length: size + 64 }, () => 0x3c00 + random.below(512)).buffer);
    const kept = (isNarrow: boolean) => (isNarrow ? halves() : floats());
    const drawn = {
      parameter: kept(widths.dtype === 'bf16'),
      gradient: kept(widths.dtype !== 'f32'),
      moment1: kept(widths.momentDtype === 'bf16'),
      moment2: kept(widths.momentDtype === 'bf16').map((byte, i) => (i % 2 === 1 ? byte & 0x7f : byte)),
      ...(widths.dtype !== 'f32' && { beside: halves() }),
    };
    const copy = (): HostValues =>
      Object.fromEntries(
        Object.entries(drawn).map(([operand, bytes]) => {
          const own = part(bytes.length);
          own.set(bytes);
          return [operand, own];
        }),
      ) as unknown as HostValues;
    const [inPlace, old, into] = [copy(), copy(), copy()];
    const host = new HostAdamW(where);
    const extent = { size, firstBlock: 0, firstNarrow: 64, widths };
    host.update(inPlace, extent, scalars);
    host.update({ ...old, into }, extent, scalars);
    expect(into).toEqual(inPlace);
    expect({ ...old }).toEqual(copy());
    expect(same(inPlace.moment1, old.moment1)).toBe(false);
  }
});
