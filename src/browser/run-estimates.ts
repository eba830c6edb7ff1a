// `RunEstimates`: the estimates of runs that are not started, or whose memory is to change, as the service gives them: by the limits
// and rates of the device here, by how weights lie in the files that are kept, and by what steps took.

import type { AdapterLimits } from '../engine/compile/workload.ts';
import { keptAdapter, keptLimits, limitsIn } from '../engine/observe/adapter-records.ts';
import type { Device } from '../gpu/device.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import type { RunForecast } from '../train/run/run-plan.ts';
import type { RunSettings } from '../train/run/run-settings.ts';
import type { CurrentDevice } from './current-device.ts';
import {
  compareActivationPolicies,
  comparePolicies,
  type EstimateBasis,
  estimateRun,
  KnownRuns,
  planHere,
} from './estimate.ts';
import type { ActivationPolicyFigures, Estimate, PolicyComparison } from './estimate-types.ts';
import type { MemorySettings, StoredWeights } from './protocol.ts';
import type { Speeds } from './speed.ts';
import { StoredHere } from './stored-weights.ts';

export class RunEstimates {
  readonly #host: BrowserHost;
  readonly #device: CurrentDevice;
  readonly #speeds: Speeds;
  readonly #stored: StoredHere;
  readonly #known = new KnownRuns();

  constructor(host: BrowserHost, device: CurrentDevice, speeds: Speeds) {
    this.#host = host;
    this.#device = device;
    this.#speeds = speeds;
    this.#stored = new StoredHere(host.files);
  }

  /** `isQuiet`: nothing is measured for it. */
  async of(settings: RunSettings, memory: MemorySettings, isQuiet: boolean, stored?: StoredWeights): Promise<Estimate> {
    const device = await this.#works();
    const basis = await this.#basis(settings, stored);
    const { secondsWithin: seconds, ...found } = estimateRun(settings, memory, basis);
    const size = { dispatches: found.dispatchesPerStep, flops: found.flopsPerStep };
    const step = device && (await this.#speeds.of(device, settings, size, isQuiet, seconds && { memory, seconds }));
    const tokens = settings.batch * settings.seq * settings.accumulate;
    const speed = step && { value: tokens / step.seconds, from: step.from };
    return { ...found, ...(speed && { tokensPerSecond: speed }), room: await this.#host.room() };
  }

  async plan(settings: RunSettings, memory: MemorySettings, stored?: StoredWeights): Promise<RunForecast> {
    const device = await this.#works();
    const basis = await this.#basis(settings, stored);
    const { plan, size, secondsWithin: seconds } = await planHere(settings, memory, basis);
    const step = device && (await this.#speeds.of(device, settings, size, true, seconds && { memory, seconds }));
    return { ...plan, ...(step && { step }) };
  }

  async policies(settings: RunSettings, memory: MemorySettings): Promise<PolicyComparison> {
    return comparePolicies(settings, memory, await this.#basis(settings));
  }

  async activationPolicies(settings: RunSettings, memory: MemorySettings): Promise<ActivationPolicyFigures[]> {
    return compareActivationPolicies(settings, memory, await this.#basis(settings));
  }

  /** Why a run does not fit, and what would; undefined where it does. */
  async problem(settings: RunSettings, memory: MemorySettings): Promise<string | undefined> {
    return estimateRun(settings, memory, await this.#basis(settings)).problem;
  }

  async #works(): Promise<Device | undefined> {
    return this.#device.opened && this.#device.open();
  }

  async #basis(settings: RunSettings, stored?: StoredWeights): Promise<EstimateBasis> {
    return {
      limits: await this.#limits(),
      stored: stored ?? (await this.#stored.of(settings)),
      known: this.#known,
    };
  }

  /** What a run's plan would go by: of the device, or, where none was opened, of the one that was here last. */
  async #limits(): Promise<AdapterLimits | undefined> {
    const opened = await this.#device.opened;
    if (opened) return keptLimits(this.#host, opened);
    const adapter = await keptAdapter(this.#host);
    return adapter && limitsIn(adapter);
  }
}
