// A checkpoint as earlier versions wrote it: the state of the run and Hugging Face's fields in one file, trainer_state.json.

import { createHash } from 'node:crypto';
import type { Files } from '../src/runtime/host.ts';

/** Makes one of the checkpoint in a folder; its checksums, where it has them, are those of what is there then. */
export async function asEarlierVersion(files: Files, folder: string): Promise<void> {
  const read = async (name: string) => new TextDecoder().decode(await files.read(`${folder}/${name}`));
  const states = [await read('holdfast_state.json'), await read('trainer_state.json')];
  const [own = {}, others = {}] = states.map((text): object => JSON.parse(text));
  const merged = `${JSON.stringify({ ...own, ...others, best_global_step: null, stateful_callbacks: {} })}\n`;
  await files.writeAtomic(`${folder}/trainer_state.json`, merged);
  await files.remove(`${folder}/holdfast_state.json`);
  if (!(await files.stat(`${folder}/SHA256SUMS`))) return;
  const sum = createHash('sha256').update(merged).digest('hex');
  const lines = (await read('SHA256SUMS'))
    .replace(/^.* {2}holdfast_state\.json\n/m, '')
    .replace(/^.* {2}trainer_state\.json\n/m, `${sum}  trainer_state.json\n`);
  await files.writeAtomic(`${folder}/SHA256SUMS`, lines);
}
