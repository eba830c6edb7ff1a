// How much arithmetic this device does in a second, for estimates: what its last run reached, kept beside the runs'
// records, or else what a matmul of middle size reaches, timed once.
//
// A matmul is the best part of a step: what it promises is more than a run of a small model reaches.

import { createStore, get, set } from 'idb-keyval';
import { KernelChoices, loadChoices, Trial } from '../engine/choices.ts';
import type { Device } from '../gpu/device.ts';
import { type MatmulProblem, matmul } from '../kernels/matmul.ts';
import type { Host } from '../runtime/host.ts';
import type { RunSettings } from '../train/run-settings.ts';
import { accept, number } from '../util/json.ts';
import { realNumber } from '../util/range.ts';
import type { Estimate } from './protocol.ts';

/** Floating-point operations in a second. */
export interface Speed {
  readonly flops: number;
  readonly from: 'run' | 'matmul';
}

/** What is kept and no such number counts as not there. */
const FLOPS = number(realNumber(1, Number.MAX_VALUE));

const PROBLEM: MatmulProblem = { layout: 'NT', M: 256, N: 256, K: 256 };

export class Speeds {
  readonly #host: Host;
  /** By the adapter's name. */
  readonly #runs = createStore('holdfast-speeds', 'runs');
  #matmul: Promise<number | undefined> | undefined;

  constructor(host: Host) {
    this.#host = host;
  }

  async keep({ adapter }: Device, flops: number): Promise<void> {
    await set(adapter.name, flops, this.#runs);
  }

  /** Undefined where nothing is known, and `quiet` says that nothing may be measured now. */
  async of(device: Device, quiet: boolean): Promise<Speed | undefined> {
    const kept = accept(FLOPS, await get(device.adapter.name, this.#runs));
    if (kept !== undefined) return { flops: kept, from: 'run' };
    // A device that fails tells whoever needs it; the next one is timed again.
    if (!quiet) {
      this.#matmul ??= time(this.#host, device).catch(() => {
        this.#matmul = undefined;
        return undefined;
      });
    }
    const flops = await this.#matmul;
    return flops === undefined ? undefined : { flops, from: 'matmul' };
  }

  /** Resolves when nothing is being measured. */
  async idle(): Promise<void> {
    await this.#matmul;
  }
}

/** Tokens that a run would see in a second, if its arithmetic were as fast. */
export function tokensAt(
  { flops, from }: Speed,
  { batch, seq, accumulate }: RunSettings,
  flopsPerStep: number,
): NonNullable<Estimate['tokensPerSecond']> {
  return { value: (flops / flopsPerStep) * batch * seq * accumulate, from };
}

async function time(host: Host, device: Device): Promise<number> {
  const choices = new KernelChoices(device, await loadChoices(host, device));
  await choices.settle([{ kernel: matmul, whole: PROBLEM, problem: PROBLEM }]);
  const trial = await Trial.open(device, matmul, PROBLEM);
  try {
    const milliseconds = await trial.time(choices.variant(matmul, PROBLEM));
    return (matmul.flops(PROBLEM) * 1000) / milliseconds;
  } finally {
    trial.close();
  }
}
