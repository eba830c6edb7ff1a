// The replay of a case of the numeric reference in the place that the tests run in, with its threads.

import type { Device } from '../src/gpu/device.ts';
import { loadCase } from '../src/parity/reference-case.ts';
import { type ReplayOptions, type ReplayResult, replay } from '../src/parity/replay-case.ts';
import { testHost } from './host.ts';

/** Of the case in `folder`. */
export const replayCase = async (device: Device, folder: string, options: ReplayOptions = {}): Promise<ReplayResult> =>
  replay(device, await loadCase(testHost, folder), { threads: testHost.threads, ...options });
