// `DeviceRecovery`: a new device in place of one that was lost, once for all work that met the loss. What the new one is
// told and what is done again there are the stepper's. A session that is not durable has nothing below to go on from:
// the loss is its end.

import type { StepPasses } from '../../engine/compile/pass.ts';
import type { LossRecovery, Session } from '../../engine/run/session.ts';
import type { Device } from '../../gpu/device.ts';
import { HoldfastError, messageOf } from '../../util/errors.ts';

export interface RecoverySteps {
  /** What the loss of a device is blamed on, for messages. */
  readonly place: () => string;
  /** Goes on with this device from what lies below. */
  readonly moveTo: (device: Device) => Promise<void>;
}

export class DeviceRecovery implements LossRecovery {
  readonly #session: Session<StepPasses>;
  readonly #steps: RecoverySteps;
  #underWay: Promise<void> | undefined;
  #losses = 0;

  constructor(session: Session<StepPasses>, steps: RecoverySteps) {
    this.#session = session;
    this.#steps = steps;
  }

  /** Devices that were lost. */
  get losses(): number {
    return this.#losses;
  }

  /**
   * Goes on with a new device in place of `device`, which work met `error` on. Errors: that one, where the device is not lost;
   * HoldfastError where nothing can go on.
   */
  async recover(error: unknown, device: Device): Promise<void> {
    const session = this.#session;
    const isGone = await device.isGone(error);
    if (session.over) throw session.over.reason;
    if (!this.#underWay && device === session.device) {
      if (!isGone) {
        device.check();
        throw error;
      }
      if (!session.fit.durable)
        throw new HoldfastError(`${lossOf(device)}, during ${this.#steps.place()}; ${this.#advice}`);
      session.executor.stop(error);
      this.#underWay = session.mutex
        .move(() => this.#continueOnNext())
        .finally(() => {
          this.#underWay = undefined;
        });
    }
    await this.#underWay;
  }

  get #advice(): string {
    const wanted = this.#session.fit.workload.inBackward ? "update 'at-end'" : "recovery 'step'";
    return `resume from the last checkpoint; with a GPU budget and ${wanted} a lost device is replaced on the way`;
  }

  /** On the device after this one, or after that, if it is lost as well. */
  async #continueOnNext(): Promise<void> {
    const session = this.#session;
    try {
      for (let done = false; !done; ) {
        session.mutex.countLoss(this.#steps.place());
        this.#losses++;
        const device = await reopened(session.device);
        done = await this.#steps.moveTo(device).then(
          () => true,
          async (error) => {
            const isGone = await device.isGone(error);
            if (session.device !== device) device.close();
            if (!isGone) throw error;
            return false;
          },
        );
      }
    } catch (reason) {
      session.end(reason);
      throw reason;
    }
  }
}

function lossOf(device: Device): string {
  try {
    device.check();
    return 'the GPU device was lost';
  } catch (error) {
    return messageOf(error);
  }
}

/** Another device on the same adapter: on another one the arithmetic might differ. */
async function reopened(lost: Device): Promise<Device> {
  const device = await lost.reopen();
  if (device.adapter.name === lost.adapter.name) return device;
  device.close();
  throw new HoldfastError(
    `${lossOf(lost)}, and its adapter ${lost.adapter.name} is not there any more; resume from the last checkpoint`,
  );
}
