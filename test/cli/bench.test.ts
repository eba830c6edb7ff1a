// What `holdfast bench` says of the host: figures are there, and none of them is judged.

import { expect, test } from 'vitest';
import { measureHostAdamW } from '../../src/cli/bench-host-adamw.ts';
import { instantiate } from '../../src/kernels/wasm-heap.ts';

test('AdamW on the host has a figure, and what it is measured by leaves all values', () => {
  for (const figure of Object.values(measureHostAdamW())) expect(figure).toBeGreaterThan(0);
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1 });
  const values = new Float32Array(memory.buffer).map((_, i) => i - 700.5);
  new Float32Array(memory.buffer).set(values);
  instantiate(memory).traffic(0, 1600, 3200, 4800, 400);
  expect(new Float32Array(memory.buffer)).toEqual(values);
});
