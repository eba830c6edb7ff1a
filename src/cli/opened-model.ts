// The model that a command reads: a path, an address or a name on the hub, with the adapters that flags choose. For
// commands that train nothing.

import type { Command } from 'commander';
import { type Device, openDevice } from '../gpu/device.ts';
import { DEFAULT_ADAPTER, NO_ADAPTER } from '../nn/lora.ts';
import type { Host } from '../runtime/host.ts';
import { bestCheckpoint } from '../train/run/best-checkpoint.ts';
import { type OpenedModel, withModel } from '../train/run/open-model.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { localBase, localModel, otherBase } from './model-source.ts';

export interface OpenFlags {
  best?: boolean;
  base?: string;
  lora?: readonly string[];
}

/** What `--lora` is for a command that uses one adapter, and for one that takes several. */
const LORA = {
  one: {
    says: 'with the adapter in this folder; none: without the one that DIR has',
    next: (value: string) => [value],
  },
  several: {
    says: 'with the adapter in this folder; none: without the one that DIR has; NAME=DIR: several, by their names, each behind a --lora',
    next: (value: string, before: readonly string[] = []) => [...before, value],
  },
};

export function addModelOptions(command: Command, takes: keyof typeof LORA): Command {
  const { says, next } = LORA[takes];
  return command
    .option('--best', BEST)
    .option('--lora <dir>', says, next)
    .option('--base <dir>', 'the model that an adapter belongs to (default: the one that it names)');
}

/** What `--best` is. */
export const BEST = 'of a run: the checkpoint of its best validation (default: the newest)';

/** The folder of a run's best checkpoint. `path`: where what is called `name` lies. Errors: HoldfastError where none is kept. */
export async function bestOf({ files }: Host, name: string, path: string): Promise<string> {
  const best = await bestCheckpoint(files, path);
  if (best !== undefined) return best;
  throw new HoldfastError(
    `--best: ${name} is no run that keeps its best checkpoint (train --keep-best does); leave the flag out`,
  );
}

/** A model, and where it lies. */
export interface NamedModel extends OpenedModel {
  /** The folder or zip that its name stands for. */
  readonly from: string;
  /** Adapters that flags name, and 'none', in their order: the first is to be used. */
  readonly named: readonly string[];
}

/** Lends a model to `use`, as `withModel` does. */
export async function withNamedModel<T>(
  host: Host,
  name: string,
  flags: OpenFlags,
  use: (opened: NamedModel) => Promise<T>,
): Promise<T> {
  const given = await localModel(host, name);
  const from = flags.best ? await bestOf(host, name, given) : given;
  const base = await localBase(host, { name, path: from, base: flags.base });
  const wanted = (flags.lora ?? []).map(adapterNamed);
  const named = wanted.map(({ name }) => name);
  const twice = named.find((name, i) => named.indexOf(name) !== i);
  if (twice !== undefined)
    throw new HoldfastError(`--lora: two adapters are called ${twice}; give each a name of its own, --lora NAME=DIR`);
  const adapters: Record<string, string> = {};
  for (const { name, path } of wanted) if (path !== undefined) adapters[name] = await localModel(host, path);
  const used = flags.base ?? name;
  for (const path of [...(flags.base === undefined ? [] : [from]), ...Object.values(adapters)]) {
    const other = await otherBase(host, path, used);
    if (other !== undefined)
      host.terminal.warn(`${path}: an adapter of ${shortened(other)} by what it says; it is used with ${used}\n`);
  }
  return withModel(host.files, from, { base, adapters }, (opened) => {
    if (named.includes(NO_ADAPTER) && opened.borrowsHead)
      throw new HoldfastError(`--lora none: ${name} has its head from the adapter, and tells nothing without`);
    return use({ ...opened, from, named });
  });
}

/** A device with what `make` opens on it. Errors: as `openDevice` and `make`; nothing stays open then. */
export async function onDevice<T extends object>(
  host: Host,
  adapter: string,
  make: (device: Device) => Promise<T>,
): Promise<T & { readonly device: Device }> {
  const device = await openDevice(host, { adapter });
  try {
    return { ...(await make(device)), device };
  } catch (error) {
    device.close();
    throw error;
  }
}

/** `NAME=DIR`, or the folder of the one that has no name; 'none' has no folder. A path whose first part has a `=` begins with `./`. */
function adapterNamed(lora: string): { readonly name: string; readonly path?: string } {
  if (lora === NO_ADAPTER) return { name: NO_ADAPTER };
  const [, name = DEFAULT_ADAPTER, path = lora] = /^([^=/\\:]+)=(.+)$/.exec(lora) ?? [];
  if (name !== NO_ADAPTER) return { name, path };
  throw new HoldfastError(`--lora ${lora}: none is the model without an adapter; give it another name`);
}
