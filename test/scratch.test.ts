import { test } from 'vitest';
import { readFileSync } from 'node:fs';
import { headlessHost } from '../src/runtime/headless.ts';
import { openDevice } from '../src/gpu/device.ts';
import { Trainer } from '../src/train/trainer.ts';
import { makeModel } from '../src/nn/index.ts';
import { parseConfig } from '../src/formats/config.ts';
import { parse } from '../src/formats/safetensors.ts';
import { IGNORE_INDEX } from '../src/graph/operators/cross-entropy.ts';
test('try', async () => {
  const device = await openDevice(headlessHost(), { adapter: process.env.HOLDFAST_ADAPTER ?? 'software' });
  console.log(device.adapter.name);
  for (const name of ['gpt2-tiny','llama-tiny','llama-tied-mqa','gpt2-accum4-ignore']) {
    const dir = 'test/fixtures/reference/' + name;
    const ref = JSON.parse(readFileSync(dir + '/ref.json', 'utf8'));
    const model = makeModel(parseConfig(JSON.parse(readFileSync(dir + '/config.json', 'utf8')), name));
    const t0 = performance.now();
    const tr = await Trainer.create(device, model, { batch: ref.micro_batch, seq: ref.seq, accumulate: ref.accum, schedule: { decay: 'cosine', peak: 1e-3, min: 1e-4, warmup: 5, steps: 20 } });
    const w = parse(new Uint8Array(readFileSync(dir + '/weights.safetensors')), name);
    tr.setWeights(new Map([...w].map(([k, v]) => [k, v.data as any])));
    const b = parse(new Uint8Array(readFileSync(dir + '/batches.safetensors')), name);
    const n = ref.micro_batch * ref.seq;
    console.log(name, 'create', performance.now() - t0, tr.cost, device.allocator.peak);
    let worst = 0, wn = 0;
    const t1 = performance.now();
    for (let s = 0; s < 20; s++) {
      const bs = [];
      for (let a = 0; a < ref.accum; a++) { const o = (s * ref.accum + a) * n;
        bs.push({ ids: b.get('input_ids')!.data.slice(o, o + n) as any, targets: b.get('targets')!.data.slice(o, o + n) as any, batch: ref.micro_batch, seq: ref.seq }); }
      const m = await tr.start(bs);
      if (s === 0) console.log(m, ref.loss_f64[0], ref.grad_norm_f64[0]);
      worst = Math.max(worst, Math.abs(m.loss - ref.loss_f64[s])); wn = Math.max(wn, Math.abs(m.gradNorm - ref.grad_norm_f64[s]) / ref.grad_norm_f64[s]);
    }
    console.log(name, 'worst loss', worst, ref.tolerance.loss, 'norm', wn, ref.tolerance.grad_norm_rel, 'ms/step', (performance.now() - t1) / 20);
    tr.destroy();
  }
}, 200000);
