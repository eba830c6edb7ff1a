// Hardware files: that each that comes along is read, says where its figures are from, and describes a machine that could
// be; and that a file of the user's is refused in one line where it is none.

import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { configFromFlags } from '../../src/cli/model-flags.ts';
import { HARDWARE, hardwareFile, knownMachine, parseHardware } from '../../src/engine/simulate/hardware.ts';
import { type Machine, machineLimits, secondsOn, usableMemory } from '../../src/engine/simulate/machine.ts';
import { makeModel } from '../../src/nn/index.ts';
import { sizeOf } from '../../src/nn/size.ts';
import { Predictor } from '../../src/train/plan/prediction.ts';
import type { Scenario } from '../../src/train/plan/prediction-part.ts';
import { HoldfastError } from '../../src/util/errors.ts';

interface Figures {
  [name: string]: Figures | number | string;
}

/** Every figure of a file, by its path. */
function figuresOf(part: Figures, path = ''): [string, Figures][] {
  if ('value' in part) return [[path, part]];
  return Object.entries(part).flatMap(([name, value]) =>
    typeof value === 'object' ? figuresOf(value, `${path}.${name}`) : [],
  );
}

describe('the machines that come along', () => {
  it('are ten at least', () => {
    expect(Object.keys(HARDWARE).length).toBeGreaterThanOrEqual(10);
  });

  it.each(Object.keys(HARDWARE))('%s is a machine whose every figure has a source', (name) => {
    const machine = knownMachine(name);
    expect(machine).toBeDefined();
    if (!machine) return;
    const figures = figuresOf(JSON.parse(HARDWARE[name] ?? ''));
    expect(figures.length).toBeGreaterThanOrEqual(6);
    for (const [path, { source }] of figures) {
      expect(source, path).toMatch(/https?:\/\/|^half of |^the same memory$|^a configuration of this machine/);
    }
    const { gpu, host } = usableMemory(machine);
    expect(gpu).toBeLessThan(machine.gpuBytes);
    if (machine.sharedMemory) {
      expect(machine.hostBytes).toBe(machine.gpuBytes);
      expect(gpu + host).toBeLessThanOrEqual(machine.gpuBytes);
      // Nothing is copied faster within a memory than it is read.
      expect(machine.link.upBytesPerSecond).toBeLessThan(machine.memoryBytesPerSecond);
    }
    expect(machine.hostMemory?.bytesPerSecond).toBeGreaterThan(0);
    if (machine.sharedMemory) expect(machine.hostMemory?.bytesPerSecond).toBe(machine.memoryBytesPerSecond);
    expect(machineLimits(machine).binding).toBeLessThan(machine.gpuBytes);
    expect(machineLimits(machine).binding % 4).toBe(0);
  });
});

describe('a hardware file', () => {
  const file = () => JSON.parse(HARDWARE['rtx-3060'] ?? '');
  const read = (change: (file: ReturnType<typeof JSON.parse>) => void) => {
    const changed = file();
    change(changed);
    return () => parseHardware(JSON.stringify(changed), 'mine.json');
  };

  it('is refused without a source, a figure, or with one that is none', () => {
    expect(read((it) => (it.gpu.flops.source = ' '))).toThrow(/mine.json: gpu.flops has no source/);
    expect(read((it) => delete it.link.upBytesPerSecond)).toThrow(/mine.json: link.upBytesPerSecond is missing/);
    expect(read((it) => (it.gpu.bytes.value = 0))).toThrow(
      'mine.json: gpu.bytes.value is 0; it must be a number from 1000 to 1000000000000000000',
    );
    expect(read((it) => (it.link.copies = 'both'))).toThrow(/one of "serial", "duplex"/);
    expect(read((it) => (it.reached = { value: 1.2, source: 'measured' }))).toThrow(/at most 1/);
    expect(() => parseHardware('{', 'mine.json')).toThrow(HoldfastError);
    expect(read((it) => (it.title = '\u001b]0;mine\u0007'))).toThrow('must be a text on one line, without control');
  });

  it.each(['{}', '[1]', '7', 'null', '{"title": "mine"}', '{'])(
    'is told what one is like where it is none: %s',
    (text) => {
      expect(() => parseHardware(text, 'mine.json')).toThrow(
        /^mine\.json: (has no figures of a machine|not JSON [^;]+); a hardware file is like .*, rtx-3060, .*; bench --share writes one$/,
      );
    },
  );

  it.each([
    ['sharedmemory', (it: ReturnType<typeof JSON.parse>) => (it.sharedmemory = 'yes')],
    ['disk.capacity', (it: ReturnType<typeof JSON.parse>) => (it.disk.capacity = it.disk.bytes)],
  ])('is refused with a field that is none: %s', (field, change) => {
    expect(read(change)).toThrow(`mine.json: ${field}: a hardware file has no such field`);
  });

  it('may say more beside a figure', () => {
    expect(read((it) => (it.gpu.flops.note = 'at boost'))()).toMatchObject({ peakFlops: file().gpu.flops.value });
  });

  it.each([
    ['link.upBytesPerSecond', 1e-300],
    ['link.downBytesPerSecond', 999],
    ['link.upBytesPerSecond', 1.1e18],
    ['gpu.bytesPerSecond', 1e300],
    ['gpu.flops', 1e-5],
    ['gpu.flops', 1e22],
    ['host.bytes', 1e200],
    ['disk.writeBytesPerSecond', 1e-9],
    ['launchSeconds', 1e4],
    ['launchSeconds', 1e-300],
    ['reached', 1e-300],
  ])('has figures that a machine may have: %s of %d is refused by name', (field, value) => {
    const change = (it: ReturnType<typeof JSON.parse>) => {
      const [last = '', ...parts] = field.split('.').reverse();
      parts.reduceRight((inside, part) => inside[part], it)[last] = { value, source: 'mine' };
    };
    expect(read(change)).toThrow(HoldfastError);
    expect(read(change)).toThrow(`mine.json: ${field}.value is ${value}; it must be a number`);
  });

  it.each([
    [1e3, 1e6, 1e3],
    [1e18, 1e21, 1e-9],
  ])('at the ends of what it may have gives steps that take time, and name what for', (speed, flops, launch) => {
    const machine = read((it) => {
      for (const field of ['upBytesPerSecond', 'downBytesPerSecond']) it.link[field].value = speed;
      for (const field of ['readBytesPerSecond', 'writeBytesPerSecond']) it.disk[field].value = speed;
      it.gpu.bytesPerSecond.value = speed;
      it.gpu.flops.value = flops;
      it.launchSeconds = { value: launch, source: 'mine' };
    })();
    const flags = { model: 'gpt2', layers: 2, width: 32, heads: 2, context: 32, vocabSize: 256, tied: true } as const;
    const config = configFromFlags(flags);
    const scenario: Scenario = {
      ...{ layers: 2, parameters: sizeOf(config).parameters, modelOf: () => makeModel(config) },
      ...{ batch: 1, context: 32, accumulate: 1, activations: 'keep', recovery: 'step' },
    };
    const predictor = new Predictor(scenario, machine);
    const found = predictor.at(predictor.smallest, 1e9);
    const waited = Object.values(found.waits).reduce((a, b) => a + b, 0);
    expect(found.computeSeconds).toBeGreaterThan(0);
    expect((found.computeSeconds + waited) / found.seconds).toBeCloseTo(1, 9);
    // The link alone takes that long.
    expect(found.seconds).toBeGreaterThanOrEqual(found.bytes.up / speed);
  });

  it('may have a network, whose figures have sources like all others', () => {
    const dgx = () => JSON.parse(HARDWARE['dgx-2'] ?? '');
    const changed = (change: (it: ReturnType<typeof JSON.parse>) => void) => {
      const it = dgx();
      change(it);
      return () => parseHardware(JSON.stringify(it), 'mine.json');
    };
    expect(changed(() => {})()).toMatchObject({ network: { ranksPerMachine: 16, exchange: 'host' } });
    expect(changed((it) => (it.network.between.latencySeconds.source = ''))).toThrow(
      'mine.json: network.between.latencySeconds has no source',
    );
    expect(changed((it) => (it.network.ranksPerMachine.value = 1.5))).toThrow('must be a whole number of GPUs');
    expect(changed((it) => delete it.network.inside)).toThrow(/network.inside is missing/);
  });

  it('may say what was measured instead of what is assumed', () => {
    const measured = read((it) => {
      it.reached = { value: 0.31, source: 'holdfast bench' };
      it.launchSeconds = { value: 1e-6, source: 'holdfast bench' };
    })();
    expect(measured).toMatchObject({ reached: 0.31, launchSeconds: 1e-6 });
    const onHost = (value: number) => read((it) => (it.hostReached = { value, source: 'holdfast bench' }));
    expect(onHost(0.9)()).toMatchObject({ hostMemory: { bytesPerSecond: 51.2e9, reached: 0.9 } });
    expect(onHost(1.1)).toThrow('mine.json: hostReached is 1.1; it must be a part, at most 1');
    const byKernel = (value: number) => read((it) => (it.reachedBy = { matmul: { value, source: 'holdfast bench' } }));
    expect(byKernel(0.4)()).toMatchObject({ reachedBy: { matmul: 0.4 } });
    expect(byKernel(1.4)).toThrow('mine.json: reachedBy.matmul is 1.4; it must be a part, at most 1');
    expect(read((it) => (it.reachedBy = { matmul: { value: 0.4, source: '' } }))).toThrow(
      'mine.json: reachedBy.matmul has no source',
    );
  });

  it('written of a measured machine, it is that machine', () => {
    const rate = fc.double({ min: 1e6, max: 1e18, noNaN: true });
    const part = fc.double({ min: 1e-9, max: 1, noNaN: true });
    const bytes = fc.integer({ min: 1000, max: 2 ** 50 });
    const machines = fc.record<Machine>(
      {
        title: fc.string(),
        ...{ peakFlops: rate, memoryBytesPerSecond: rate, launchSeconds: part, reached: part },
        ...{ gpuBytes: bytes, hostBytes: bytes, sharedMemory: fc.boolean() },
        hostMemory: fc.record({ bytesPerSecond: rate, reached: part }),
        reachedBy: fc.dictionary(fc.constantFrom('matmul', 'attention', 'softmax'), part),
        link: fc.record({ upBytesPerSecond: rate, downBytesPerSecond: rate, copies: fc.constant('serial') }),
        disk: fc.record({ readBytesPerSecond: rate, writeBytesPerSecond: rate, bytes }),
      },
      {
        requiredKeys: [
          ...(['title', 'peakFlops', 'memoryBytesPerSecond', 'launchSeconds', 'reached'] as const),
          ...(['gpuBytes', 'hostBytes', 'sharedMemory', 'link'] as const),
        ],
      },
    );
    fc.assert(
      fc.property(machines, (machine) => {
        expect(parseHardware(hardwareFile(machine, 'holdfast bench'), 'mine.json')).toEqual(machine);
      }),
      { seed: 3 },
    );
  });
});

test('a kernel that was measured takes what it reaches of the longer of arithmetic and memory, others of arithmetic alone', () => {
  const machine = {
    ...knownMachine('rtx-3060'),
    peakFlops: 1000,
    reached: 0.5,
    memoryBytesPerSecond: 100,
    launchSeconds: 1,
  };
  const kernel = { name: 'k', flops: () => 4000, operands: () => ({ x: { size: 100, type: 'f32', access: 'read' } }) };
  const dispatch = { op: 'dispatch', kernel, problem: {}, operands: {} } as unknown as Parameters<typeof secondsOn>[1];
  const seconds = (change: object) => secondsOn({ ...machine, ...change } as Machine, dispatch);
  // 4 s of arithmetic at the peak, 4 s of memory; at half of the peak 8 s.
  expect(seconds({})).toBe(9);
  expect(seconds({ reachedBy: { k: 0.25 } })).toBe(17);
  expect(seconds({ reachedBy: { k: 0.25 }, memoryBytesPerSecond: 10 })).toBe(161);
  expect(seconds({ reachedBy: { other: 0.25 } })).toBe(9);
});
