// `CurrentDevice`: the GPU device of this worker, opened when it is first needed, and anew once it is lost or something went
// wrong on it. Invariant: one is open at a time.

import { type Device, openDevice } from '../gpu/device.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';

export class CurrentDevice {
  readonly #host: BrowserHost;
  #opened: Promise<Device> | undefined;

  constructor(host: BrowserHost) {
    this.#host = host;
  }

  /** The one that was opened last, if any was: it may be lost. */
  get opened(): Promise<Device> | undefined {
    return this.#opened;
  }

  /** One that works. Errors: HoldfastError where there is no WebGPU or no adapter. */
  async open(): Promise<Device> {
    const before = this.#opened;
    const device = await before?.catch(() => undefined);
    if (device?.status === 'works') return device;
    // Another call was first.
    if (this.#opened && this.#opened !== before) return this.#opened;
    device?.close();
    this.#opened = openDevice(this.#host).catch((error) => {
      throw new HoldfastError(`this browser gives no GPU: ${messageOf(error).replace(/; see holdfast devices$/, '')}`);
    });
    return this.#opened;
  }

  async close(): Promise<void> {
    if (this.#opened) (await this.#opened).close();
  }
}
