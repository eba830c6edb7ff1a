// `KernelChoices`: the choice of a variant of a kernel for a problem: measured on this adapter, once, and remembered.
// The choices of a run are saved with it, since another variant may round otherwise: the same run repeats the same
// choices.

import { checkDevice, type Device } from '../../gpu/device.ts';
import { type Kernel, mayServe, type StoredOperands, type Variant } from '../../kernels/kernel.ts';
import KERNELS from '../../kernels/kernel.ts?digest';
import { readingNarrow } from '../../kernels/stored.ts';
import { checkHost } from '../../runtime/check-host.ts';
import type { Host } from '../../runtime/host.ts';
import { assert } from '../../util/errors.ts';
import { check, namesTo, object, text } from '../../util/json.ts';
import { adapterKey, readCache, writeCache } from './adapter-cache.ts';
import { boundTogether, type DispatchOperation, storedOperands } from './operations.ts';
import { isProven } from './proof.ts';
import { Trial } from './trial.ts';

/** Problem key -> variant name, as saved with a run. */
export type ChoiceRecord = Record<string, string>;

/**
 * A software adapter computes so many operations within a millisecond: over fewer, what a variant that compiles slowly takes
 * to compile is not won back in a thousand steps, and it is not tried.
 */
const WORTH_COMPILING_FLOPS = 2 ** 20;
// biome-ignore lint/suspicious/noExplicitAny: kernels of different problems
type AnyKernel = Kernel<any>;

/**
 * Problems with equal keys share a choice: the kernel, the fields that its speed may depend on, each dimension rounded
 * up to a power of two, and the variants that serve it.
 */
export function keyOf(kernel: AnyKernel, problem: object, candidates: readonly { readonly name: string }[]): string {
  const parts = Object.entries(problem)
    .filter(([name]) => {
      assert(name in kernel.affectsSpeed, `${kernel.name} does not say whether its speed depends on ${name}`);
      return kernel.affectsSpeed[name];
    })
    .map(([name, value]) => `${name}=${sizeClass(value)}`);
  return `${kernel.name} ${parts.join(' ')} ${candidates.map(({ name }) => name).join('|')}`;
}

function sizeClass(value: unknown): string {
  if (typeof value === 'number') return `${2 ** Math.ceil(Math.log2(Math.max(1, value)))}`;
  if (typeof value !== 'object' || value === null) return `${value}`;
  return Object.entries(value)
    .map(([name, part]) => `${name}:${sizeClass(part)}`)
    .join(',');
}

/** A choice to be made: between these, on this problem. */
interface Unsettled {
  readonly kernel: AnyKernel;
  readonly problem: object;
  readonly stored: StoredOperands;
  readonly together: readonly string[];
  readonly variants: readonly Variant<object>[];
}

export class KernelChoices {
  /** Ends measuring while it is set: `settle` rejects with Stopped. */
  signal: AbortSignal | undefined;
  readonly #device: Device;
  readonly #chosen = new Map<string, string>();
  #measured = 0;

  /** `recorded` choices (of a checkpoint, or the cache) are taken as they are. */
  constructor(device: Device, recorded: ChoiceRecord = {}) {
    check(namesTo(text), recorded, 'the kernel choices');
    this.#device = device;
    for (const [key, name] of Object.entries(recorded)) this.#chosen.set(key, name);
  }

  /** Choices made by trials so far, those of other ranks included. */
  get measured(): number {
    return this.#measured;
  }

  record(): ChoiceRecord {
    return Object.fromEntries([...this.#chosen].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  /** Takes choices that others have made; none is made anew. */
  learn(recorded: ChoiceRecord): void {
    for (const [key, name] of Object.entries(recorded)) {
      if (this.#chosen.has(key)) continue;
      this.#chosen.set(key, name);
      this.#measured++;
    }
  }

  /**
   * Measures what the dispatches need and is not chosen yet. A choice is made for a whole problem, on the first of
   * its parts that lie in one tile: what that needs fits where the dispatch itself fits. Errors: Stopped, where `signal` says so.
   */
  async settle(
    dispatches: readonly Pick<DispatchOperation, 'kernel' | 'whole' | 'problem' | 'operands'>[],
  ): Promise<void> {
    const unsettled = new Map<string, Unsettled>();
    for (const dispatch of dispatches) {
      const { kernel, whole, problem } = dispatch;
      if (kernel.variants.length < 2) continue;
      const stored = storedOperands(dispatch);
      const candidates = this.#candidates(kernel, whole, stored);
      if (candidates.length < 2) continue;
      const key = keyOf(kernel, whole, candidates);
      const recorded = candidates.find(({ name }) => name === this.#chosen.get(key));
      if (unsettled.has(key) || (recorded && (await isProven(this.#device, kernel, recorded)))) continue;
      const proven = await Promise.all(candidates.map((variant) => isProven(this.#device, kernel, variant)));
      const variants = this.#worthTrying(
        kernel,
        whole,
        candidates.filter((_, i) => proven[i]),
      );
      unsettled.set(key, { kernel, problem, stored, together: boundTogether(dispatch), variants });
    }
    await this.#compile([...unsettled.values()]);
    for (const [key, one] of unsettled) {
      this.#chosen.set(key, await this.#fastest(one));
      this.#measured++;
    }
  }

  /** A GPU's compiler takes longer over a shader than its trial does, and several at once; a CPU is busy with one. */
  async #compile(trials: readonly Unsettled[]): Promise<void> {
    const { pipelines, traits } = this.#device;
    if (traits.software) return;
    await Promise.all(
      trials.flatMap(({ kernel, problem, stored, together, variants }) =>
        variants.map((variant) => {
          const { shader, constants } = variant.dispatch(problem, traits);
          return pipelines.get(`${kernel.name}.${variant.name}`, readingNarrow(shader, stored), constants, together);
        }),
      ),
    );
  }

  #worthTrying(kernel: AnyKernel, problem: object, candidates: Variant<object>[]): Variant<object>[] {
    if (!this.#device.traits.software || kernel.flops(problem) >= WORTH_COMPILING_FLOPS) return candidates;
    const quick = candidates.filter(({ compilesSlowly }) => !compilesSlowly);
    return quick.length > 0 ? quick : candidates;
  }

  /** `stored`: how the operands that it reads are, in each of its parts. */
  variant<P extends object>(kernel: Kernel<P>, problem: P, stored: StoredOperands): Variant<P> {
    const candidates = this.#candidates(kernel, problem, stored);
    const name = this.#chosen.get(keyOf(kernel, problem, candidates));
    const variant = candidates.find((candidate) => candidate.name === name) ?? candidates[0];
    assert(variant, `no variant of ${kernel.name} fits this adapter`);
    return variant as Variant<P>;
  }

  #candidates(kernel: AnyKernel, problem: object, stored: StoredOperands): Variant<object>[] {
    return kernel.variants.filter((variant) => mayServe(variant, problem, this.#device.traits, stored));
  }

  async #fastest({ kernel, problem, stored, together, variants }: Unsettled): Promise<string> {
    const [only] = variants;
    if (only && variants.length === 1) return only.name;
    const trial = await Trial.open(this.#device, kernel, problem, stored, together);
    try {
      return await trial.fastest(variants, this.signal);
    } finally {
      trial.close();
    }
  }
}

const CACHE_FILE = 'kernel-choices.json';
/** Adapter -> the kernels that were tried there, and the choices. */
const CACHE = namesTo(object({ kernels: text, choices: namesTo(text) }));

/** The remembered choices for this adapter and runtime; empty when there are none, or they are of other kernels than there are now. */
export async function loadChoices(host: Host, device: Device): Promise<ChoiceRecord> {
  checkHost(host);
  checkDevice(device);
  const all = await readCache(host, CACHE_FILE, CACHE);
  return choicesIn(all, adapterKey(host, device));
}

function choicesIn(
  all: Readonly<Record<string, { kernels: string; choices: ChoiceRecord }>> = {},
  key: string,
): ChoiceRecord {
  const known = all[key];
  return known?.kernels === KERNELS ? known.choices : {};
}

/** Adds this run's choices to what is remembered. A cache that cannot be written is not an error. */
export async function saveChoices(host: Host, device: Device, record: ChoiceRecord): Promise<void> {
  checkHost(host);
  checkDevice(device);
  check(namesTo(text), record, 'record');
  const all = (await readCache(host, CACHE_FILE, CACHE)) ?? {};
  const key = adapterKey(host, device);
  await writeCache(host, CACHE_FILE, {
    ...all,
    [key]: { kernels: KERNELS, choices: { ...choicesIn(all, key), ...record } },
  });
}
