// What is read of a model before its weights are: the page says what a model needs while all of them are still where they
// came from.

import { zipSync } from 'fflate';
import { expect, test } from 'vitest';
import { inspectFiles, isAdapterZip } from '../../src/browser/models.ts';
import { publishedAdapter, publishedModel } from '../browser/published.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

/** Counts what is read of it. */
class CountedFile extends File {
  bytesRead = 0;

  override slice(from = 0, to = this.size): Blob {
    this.bytesRead += to - from;
    return super.slice(from, to);
  }

  override stream(): ReadableStream<Uint8Array<ArrayBuffer>> {
    this.bytesRead += this.size;
    return super.stream();
  }
}

test('of the weights’ files no more than their headers is read, and of an adapter’s', async () => {
  const folders = {
    'tiny-llama': await publishedModel('a text to make tokens of. '.repeat(40)),
    mine: publishedAdapter(8),
  };
  const chosen = Object.entries(folders).flatMap(([folder, files]) =>
    Object.entries(files).map(([name, bytes]) => ({
      path: `${folder}/${name}`,
      file: new CountedFile([Uint8Array.from(bytes)], name),
    })),
  );
  const files = new MemoryFiles();
  const info = await inspectFiles(memoryHost(files), chosen);
  expect(info).toMatchObject({ name: 'tiny-llama', adapter: { rank: 8 } });
  expect(files.contents.size).toBe(0);
  for (const { path, file } of chosen) {
    if (!path.endsWith('.safetensors')) continue;
    const header = 8 + Number(new DataView(await file.arrayBuffer()).getBigUint64(0, true));
    // The length of the header is read first.
    expect(file.bytesRead, path).toBeGreaterThan(0);
    expect(file.bytesRead, path).toBeLessThanOrEqual(header + 8);
    expect(header + 8, path).toBeLessThan(file.size / 2);
  }
  expect(chosen.find(({ path }) => path === 'tiny-llama/README.md')?.file.bytesRead).toBe(0);
});

test('rates of dropout of its config.json are told, and none where there is none', async () => {
  const inspected = async (changes: Readonly<Record<string, unknown>>) => {
    const folder = await publishedModel('a text to make tokens of. '.repeat(40), changes);
    const chosen = Object.entries(folder).map(([name, bytes]) => ({
      path: `m/${name}`,
      file: new File([Uint8Array.from(bytes)], name),
    }));
    return inspectFiles(memoryHost(new MemoryFiles()), chosen);
  };
  expect((await inspected({ attention_dropout: 0.1 })).dropout).toEqual(['attention_dropout 0.1']);
  expect(await inspected({ attention_dropout: 0 })).not.toHaveProperty('dropout');
});

test('several adapters or GGUF files are none: what there is to choose from is listed', async () => {
  const host = memoryHost(new MemoryFiles());
  const adapter = publishedAdapter(8);
  const under = (folder: string, content: Readonly<Record<string, Uint8Array>>) =>
    Object.fromEntries(Object.entries(content).map(([name, bytes]) => [`${folder}${name}`, bytes]));
  const chosen = (files: Readonly<Record<string, Uint8Array>>) =>
    Object.entries(files).map(([path, bytes]) => ({ path, file: new File([Uint8Array.from(bytes)], path) }));
  const model = under('m/', await publishedModel('a text to make tokens of. '.repeat(40)));
  const steps = (...all: number[]) =>
    zipSync(Object.assign({}, ...all.map((step) => under(`out/checkpoint-${step}/`, adapter))));

  const [two] = chosen({ 'peft.zip': steps(500, 1000) });
  expect(await isAdapterZip(host, two?.file as File)).toBe(true);
  await expect(inspectFiles(host, [...chosen(model), ...(two ? [two] : [])])).rejects.toThrow(
    'there are 2 adapters (peft.zip/out/checkpoint-1000, peft.zip/out/checkpoint-500); choose a model with one of them',
  );
  const beside = { ...under('m/a/', adapter), ...under('m/b/', adapter), 'c.zip': zipSync(adapter) };
  await expect(inspectFiles(host, chosen({ ...model, ...beside }))).rejects.toThrow(
    /there are 3 adapters \(c\.zip, .*\/a, .*\/b\);/,
  );
  await expect(inspectFiles(host, chosen({ 'x.zip': steps(1, 2, 3, 4, 5, 6) }))).rejects.toThrow(
    /there are 6 adapters \((x\.zip\/out\/checkpoint-\d, ){5}\.\.\.\);/,
  );
  const one = chosen({ ...model, 'peft.zip': steps(500) });
  expect(await inspectFiles(host, one)).toMatchObject({ adapter: { rank: 8 } });

  const bytes = new Uint8Array(4);
  await expect(inspectFiles(host, chosen({ 'q/a.gguf': bytes, 'q/b.gguf': bytes }))).rejects.toThrow(
    'there are 2 GGUF files (q/a.gguf, q/b.gguf); choose one of them',
  );
});
