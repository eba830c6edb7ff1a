// Option parsing that several commands share: numbers with their ranges, and the adapter.

import { InvalidArgumentError, Option } from 'commander';
import { messageOf } from '../util/errors.ts';

/** A parser for whole numbers from `least` on. */
export function whole(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || !Number.isSafeInteger(value) || value < least) {
      throw new InvalidArgumentError(`It must be a whole number, ${least} or more.`);
    }
    return value;
  };
}

/** A parser for finite numbers from `least` on. */
export function number(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() === '' || !Number.isFinite(value) || value < least) {
      throw new InvalidArgumentError(`It must be a number, ${least} or more.`);
    }
    return value;
  };
}

/** Turns an error of a library parser into one of the option's. */
export function checked<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      throw new InvalidArgumentError(messageOf(error));
    }
  };
}

export const adapterOption = (): Option =>
  new Option('--adapter <name>', 'auto, software (the embedded one), or a part of an adapter’s name').default('auto');

/** How much a lost device may cost. */
export const recoveryOption = (): Option =>
  new Option('--recovery <how>', 'with a budget: a lost GPU device costs a step, or goes back to the checkpoint')
    .choices(['step', 'checkpoint'])
    .default('step');
