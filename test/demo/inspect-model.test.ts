// What is read of a model before its weights are: the page says what a model needs while all of them are still where they
// came from.

import { expect, test } from 'vitest';
import { inspectFiles } from '../../src/browser/models.ts';
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
