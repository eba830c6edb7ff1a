// `Speeds`: the expected times of runs' steps on this device, for estimates: by what is kept of the runs that were here
// (train/plan/step-times.ts), and of two small steps, which are run once while nothing else computes.

import { limitsOf } from '../engine/run/arrangement.ts';
import type { Device } from '../gpu/device.ts';
import type { Host } from '../runtime/host.ts';
import { measureStepCosts } from '../train/plan/step-probe.ts';
import {
  type Confined,
  type ExpectedStep,
  keepStepCosts,
  knownSteps,
  type StepCosts,
  type StepSize,
  stepTime,
} from '../train/plan/step-times.ts';
import { stepWayOf } from '../train/run/kept-time.ts';
import type { RunSettings } from '../train/run/run-settings.ts';

export class Speeds {
  readonly #host: Host;
  #probe: Promise<StepCosts | undefined> | undefined;
  /** What the probe came to. */
  #costs: StepCosts | undefined;
  #wanted = false;

  constructor(host: Host) {
    this.#host = host;
  }

  /** Undefined where nothing is known yet, and `quiet` says that nothing may be measured or waited for now. */
  async of(
    device: Device,
    settings: RunSettings,
    size: StepSize,
    quiet: boolean,
    confined?: Confined,
  ): Promise<ExpectedStep | undefined> {
    const { runs, costs = await this.#measured(device, quiet) } = await knownSteps(this.#host, device);
    return stepTime(stepWayOf(settings), size, { runs, ...(costs && { costs }) }, limitsOf(device).rates, confined);
  }

  /** Resolves when nothing is being measured; what is under way is left early. */
  async idle(): Promise<void> {
    this.#wanted = false;
    await this.#probe;
  }

  /** A device that fails tells whatever needs it; the next one is timed again. */
  #measured(device: Device, quiet: boolean): Promise<StepCosts | undefined> {
    if (quiet) return Promise.resolve(this.#costs);
    this.#wanted = true;
    this.#probe ??= this.#measure(device)
      .catch(() => undefined)
      .then((costs) => {
        if (costs) this.#costs = costs;
        else this.#probe = undefined;
        return costs;
      });
    return this.#probe;
  }

  async #measure(device: Device): Promise<StepCosts | undefined> {
    const costs = await measureStepCosts(this.#host, device, () => this.#wanted);
    if (costs) await keepStepCosts(this.#host, device, costs);
    return costs;
  }
}
