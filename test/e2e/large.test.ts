// A model that is larger than the GPU's budget and the host's, fine-tuned by low-rank updates: in its own bfloat16, and on a
// base in NF4 (QLoRA), within the memory that was said. `npm run test:all`: 1.1 thousand million parameters of a Llama.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { BYTE_CHARACTERS } from '../../src/util/byte-characters.ts';
import { formatBytes } from '../../src/util/bytes.ts';
import { bytesTokenizer, writeRandomModel } from '../formats/random-model.ts';
import { EVERY_CASE, VERBOSE } from '../host.ts';
import { records, start } from './cli.ts';

const MB = 1e6;
/** What a runtime, a software adapter with its shaders, and the readers of files take beside the budgets: up to 500 MB on a busy machine. */
const SLACK = 768 * MB;

const SIZES = EVERY_CASE
  ? {
      ...{ vocab_size: 32000, hidden_size: 2048, intermediate_size: 5632, num_hidden_layers: 22 },
      ...{ num_attention_heads: 32, num_key_value_heads: 4 },
    }
  : {
      ...{ vocab_size: 2048, hidden_size: 512, intermediate_size: 1408, num_hidden_layers: 8 },
      ...{ num_attention_heads: 8, num_key_value_heads: 2 },
    };
const CASES = EVERY_CASE
  ? ([
      ['auto', 256 * MB, 1500 * MB],
      ['nf4', 256 * MB, 1000 * MB],
    ] as const)
  : ([['nf4', 12 * MB, 12 * MB]] as const);

const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-large-'));
let bytes = 0;
beforeAll(() => {
  const model = path.join(folder, 'model');
  bytes = writeRandomModel(model, { ...SIZES, max_position_embeddings: 64 }, EVERY_CASE ? 600 * MB : 20 * MB);
  writeFileSync(path.join(model, 'tokenizer.json'), JSON.stringify(bytesTokenizer(SIZES.vocab_size, BYTE_CHARACTERS)));
  writeFileSync(path.join(folder, 'text.txt'), 'to hold fast is to keep training when memory is short. '.repeat(100));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The most that a process ever had resident, as long as it lives; undefined where the system does not say. */
function peakOf(pid: number | undefined): number | undefined {
  try {
    const [, kilobytes] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    return kilobytes === undefined ? undefined : 1024 * Number(kilobytes);
  } catch {
    return undefined;
  }
}

test.each(CASES)(
  'on a base in %s, in %i bytes of GPU memory and %i of host memory',
  {
    timeout: 7_200_000,
  },
  async (dtype, gpu, host) => {
    const memory = ['--gpu-memory', `${gpu}`, '--host-memory', `${host}`, '--disk', 'tiers'];
    const steps = ['--batch', '1', '--context', '16', '--steps', '2', '--warmup', '0', '--lr', '1e-3'];
    const quick = ['--eval-windows', '1', '--sample-tokens', '0', '--json'];
    const lora = ['--lora-rank', '8', '--base-dtype', dtype, '--out', `run-${dtype}`];
    const args = ['train', '--model', 'model', '--data', 'text.txt', ...lora, ...steps, ...memory, ...quick];
    let peak = 0;
    const { child, finished } = start(args, { cwd: folder });
    const look = setInterval(() => {
      peak = Math.max(peak, peakOf(child.pid) ?? 0);
    }, 50);
    const { status, stdout, stderr } = await finished;
    clearInterval(look);
    expect(status, stderr).toBe(0);
    const losses = records(stdout).flatMap(({ loss, step }) =>
      typeof step === 'number' && loss !== undefined ? [loss] : [],
    );
    expect(losses.length).toBeGreaterThanOrEqual(2);
    expect(losses.every(Number.isFinite)).toBe(true);
    // A loader of whole files has the file's bytes and its float32 in memory, a runtime not counted.
    const whole = 3 * bytes;
    if (VERBOSE || EVERY_CASE)
      console.log(
        `${formatBytes(bytes)} of bfloat16, base ${dtype}: ${formatBytes(peak)} resident at most, ` +
          `whole files would take ${formatBytes(whole)} beside a runtime; losses ${losses}`,
      );
    expect(peak).toBeLessThan(gpu + host + SLACK);
    // Of a small model, the runtime is more than the weights.
    if (EVERY_CASE) expect(peak).toBeLessThan(whole);
  },
);
