// Cases that are damaged or that cannot be replayed: one line that names the file, what is wrong, and what
// would work. No device: a case is refused before anything runs.

import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse, type StoredTensor, serialize } from '../../src/formats/safetensors.ts';
import { loadCase } from '../../src/parity/reference-case.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { entry } from '../entry.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

function filesOf(name: string): MemoryFiles {
  const folder = `test/fixtures/reference/${name}`;
  return new MemoryFiles(
    Object.fromEntries(readdirSync(folder).map((file) => [`case/${file}`, readFileSync(`${folder}/${file}`)])),
  );
}

// biome-ignore lint/suspicious/noExplicitAny: JSON to break
function editJSON(files: MemoryFiles, file: string, edit: (json: any) => void): void {
  const json = JSON.parse(new TextDecoder().decode(files.contents.get(`case/${file}`)));
  edit(json);
  files.contents.set(`case/${file}`, new TextEncoder().encode(JSON.stringify(json)));
}

function editTensors(files: MemoryFiles, file: string, edit: (tensors: Map<string, StoredTensor>) => void): void {
  const tensors = parse(entry(files.contents, `case/${file}`), file);
  edit(tensors);
  files.contents.set(`case/${file}`, serialize(tensors));
}

async function refusal(files: MemoryFiles): Promise<string> {
  const error = await loadCase(memoryHost(files), 'case').then(
    () => expect.fail('the case was accepted'),
    (thrown) => thrown,
  );
  expect(error).toBeInstanceOf(HoldfastError);
  expect(error.message).not.toContain('\n');
  return error.message;
}

it.each([
  ['weights.safetensors', { kind: 'file', bytes: 10e9 }, 'has 10.0 GB, at most 1.07 GB are read of such a file'],
  ['grads_step1.safetensors', { kind: 'pipe', bytes: 0 }, 'is a pipe, not a file'],
  ['grads_step1.safetensors', { kind: 'other', bytes: 0 }, 'is a device, not a file'],
] as const)('%s that is %j is not read', async (name, as, problem) => {
  const files = filesOf('gpt2-accum4-ignore');
  files.contents.set('case/grads_step1.safetensors', entry(files.contents, 'case/grads.safetensors'));
  const { stat, read } = files;
  const at = `case/${name}`;
  files.stat = async (path) => (path === at ? as : stat.call(files, path));
  files.read = async (path) => (path === at ? expect.fail('it was read') : read.call(files, path));
  expect(await refusal(files)).toBe(`${at}: ${problem}; copy it again`);
});

it('an undamaged case is accepted', async () => {
  const files = filesOf('gpt2-accum4-ignore');
  expect(await loadCase(memoryHost(files), 'case')).toMatchObject({
    name: 'gpt2-accum4-ignore',
    accumulate: 4,
    batch: 2,
    seq: 15,
  });
});

describe('files', () => {
  const needed = [
    'ref.json',
    'config.json',
    ...['weights', 'batches', 'activations', 'grads', 'final'].map((name) => `${name}.safetensors`),
  ];

  it.each(needed)('%s missing', async (file) => {
    const files = filesOf('gpt2-stdinit');
    files.contents.delete(`case/${file}`);
    expect(await refusal(files)).toMatch(new RegExp(`^case/${file} is missing: .*copy it again`));
  });

  it.each(needed)('%s cut short', async (file) => {
    const files = filesOf('gpt2-stdinit');
    files.contents.set(`case/${file}`, entry(files.contents, `case/${file}`).slice(0, -5));
    expect(await refusal(files)).toMatch(new RegExp(`^case/${file}.*copy it again`));
  });

  it.each(needed.filter((file) => file.endsWith('.safetensors')))('%s empty', async (file) => {
    const files = filesOf('llama-tiny');
    files.contents.set(`case/${file}`, new Uint8Array());
    expect(await refusal(files)).toMatch(new RegExp(`^case/${file}: 0 bytes`));
  });

  it('a file of another case', async () => {
    for (const file of ['weights', 'grads', 'final', 'activations', 'batches'].map((name) => `${name}.safetensors`)) {
      const files = filesOf('gpt2-tiny');
      files.contents.set(`case/${file}`, entry(filesOf('gpt2-stdinit').contents, `case/${file}`));
      expect(await refusal(files)).toMatch(new RegExp(`^case/${file}: .*[;,] copy the case again`));
    }
  });
});

describe('tensors', () => {
  const zeros = { dtype: 'F32', shape: [1], data: new Float32Array(1) } as const;

  it.each(['weights.safetensors', 'grads.safetensors', 'final.safetensors'])(
    '%s without one, with one too many',
    async (file) => {
      const files = filesOf('gpt2-stdinit');
      editTensors(files, file, (tensors) => tensors.delete('h.1.ln_2.bias'));
      expect(await refusal(files)).toMatch(`case/${file}: tensor "h.1.ln_2.bias" is missing`);
      const more = filesOf('gpt2-stdinit');
      editTensors(more, file, (tensors) => tensors.set('h.7.extra', zeros));
      expect(await refusal(more)).toMatch(`case/${file}: there is no place for tensor "h.7.extra"`);
    },
  );

  it('another type', async () => {
    const files = filesOf('gpt2-stdinit');
    editTensors(files, 'final.safetensors', (tensors) => {
      const { shape, data } = entry(tensors, 'ln_f.bias');
      tensors.set('ln_f.bias', { dtype: 'F64', shape, data: Float64Array.from(data) });
    });
    expect(await refusal(files)).toMatch('case/final.safetensors: tensor "ln_f.bias" is F64');
  });

  it('activations that no forward pass gives', async () => {
    const files = filesOf('gpt2-stdinit');
    editTensors(files, 'activations.safetensors', (tensors) => tensors.set('h.9', zeros));
    expect(await refusal(files)).toMatch('case/activations.safetensors: tensor "h.9" is none');
  });

  it('tokens outside the vocabulary', async () => {
    for (const name of ['input_ids', 'targets']) {
      const files = filesOf('gpt2-stdinit');
      editTensors(files, 'batches.safetensors', (tensors) => (entry(tensors, name).data[3] = 5000));
      expect(await refusal(files)).toMatch(
        `case/batches.safetensors: ${name} has token 5000, the vocabulary of config.json ends at`,
      );
    }
    const files = filesOf('gpt2-stdinit');
    editTensors(files, 'batches.safetensors', (tensors) => (entry(tensors, 'input_ids').data[0] = -100));
    expect(await refusal(files)).toMatch('input_ids has token -100');
  });
});

describe('ref.json', () => {
  // biome-ignore lint/suspicious/noExplicitAny: JSON to break
  const edits: [string, (ref: any) => void, RegExp][] = [
    ['another ignore_index', (ref) => (ref.ignore_index = -1), /ignore_index is -1; it must be -100/],
    [
      'a name that steers a terminal',
      (ref) => (ref.name = 'a\u001b[2J'),
      /name is .*; it must be a text on one line, without/,
    ],
    ['another kind', (ref) => (ref.kind = 'mamba'), /kind is "mamba"; it must be one of "gpt2", "gpt2-lora"/],
    ['the kind of another config', (ref) => (ref.kind = 'llama'), /kind is llama, but config.json has model_type gpt2/],
    ['another reduction', (ref) => (ref.reduction = 'sum'), /reduction is "sum"; it must be one of/],
    [
      'uneven micro-batch means',
      (ref) => (ref.reduction = 'micro_mean'),
      /micro-batches of step 0 have .* only token_mean/,
    ],
    ['other steps', (ref) => (ref.steps = 21), /no I32 tensor "input_ids" of shape \[21, 4, 2, 15\]/],
    ['steps that disagree', (ref) => (ref.hparams.steps = 21), /hparams.steps is 21 and steps is 20/],
    ['a sequence past the context', (ref) => (ref.seq = 1500), /shape \[20, 4, 2, 1500\]/],
    ['no hyperparameter', (ref) => delete ref.hparams.beta2, /hparams.beta2 is missing; it must be a number/],
    ['no clipping', (ref) => (ref.hparams.max_norm = 0), /hparams.max_norm is 0; it must be a number above 0/],
    ['a short curve', (ref) => ref.loss_f64.pop(), /loss_f64 is a list of 19; it must be a list of 20/],
    ['a hole in a curve', (ref) => (ref.grad_norm_f64[3] = null), /grad_norm_f64\[3\] is null; it must be a number/],
    ['no tolerances', (ref) => delete ref.tolerance, /tolerance is missing/],
    ['a tolerance of nothing', (ref) => (ref.tolerance.loss = 0), /tolerance.loss is 0/],
    [
      'a count that is none',
      (ref) => (ref.micro_batch = '2'),
      /micro_batch is "2"; it must be a whole number, 1 or more/,
    ],
  ];
  it.each(edits)('%s', async (_, edit, message) => {
    const files = filesOf('gpt2-accum4-ignore');
    editJSON(files, 'ref.json', edit);
    expect(await refusal(files)).toMatch(message);
  });

  it('low-rank updates without their file', async () => {
    const files = filesOf('gpt2-stdinit');
    editJSON(files, 'ref.json', (ref) => {
      ref.kind = 'gpt2-lora';
      ref.lora = { scale: 2 };
    });
    expect(await refusal(files)).toMatch('case/lora.safetensors');
  });

  it('config.json with a field that we do not compute', async () => {
    const files = filesOf('gpt2-stdinit');
    editJSON(files, 'config.json', (config) => (config.activation_function = 'relu'));
    expect(await refusal(files)).toMatch(/^case\/config.json: activation_function is "relu"/);
  });
});
