// `GradientsAside`: copies of the gradients of a step that updates inside its backward pass, each chunk's made right before its
// update uses it up. There are some only where all gradients are asked for: together they are the list that such a step never
// holds.

import type { Pass } from '../../engine/compile/pass.ts';
import type { Session } from '../../engine/run/session.ts';
import { tensorsOf } from '../../engine/run/values.ts';
import { gradientKind } from '../../memory/layout/kinds.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { TensorSource } from '../../values/tensor-source.ts';

export class GradientsAside {
  readonly #session: Pick<Session, 'map' | 'executor'>;
  readonly #chunks = new Map<number, Uint8Array<ArrayBuffer>>();

  constructor(session: Pick<Session, 'map' | 'executor'>) {
    this.#session = session;
  }

  /** Runs moments `from` to `to` of a pass by `run`, and copies what they use up. */
  async run(
    { operations }: Pass,
    from: number,
    to: number,
    run: (from: number, to: number) => Promise<void>,
  ): Promise<void> {
    const { map, executor } = this.#session;
    let done = from;
    for (let moment = from; moment < to; moment++) {
      const { each } = at(operations, moment);
      if (each?.eager !== 'unused') continue;
      await run(done, moment);
      done = moment;
      const { chunk } = map.placeOf(gradientKind(map.dtype), each.index);
      const bytes = this.#chunks.get(chunk) ?? new Uint8Array(map.chunkBytes);
      await executor.read(chunk, 0, bytes);
      this.#chunks.set(chunk, bytes);
    }
    await run(done, to);
  }

  /** By the names of their parameters. */
  get tensors(): TensorSource {
    return tensorsOf(this.#session.map, 'gradient', async (chunk, offset, into) => {
      const bytes = this.#chunks.get(chunk);
      assert(bytes, `the gradients of chunk ${chunk} were used up unseen`);
      into.set(bytes.subarray(offset, offset + into.length));
    });
  }
}
