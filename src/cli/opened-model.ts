// The model that a command reads: a path, an address or a name on the hub, with the adapter that flags choose. For commands
// that train nothing.

import type { Command } from 'commander';
import { DEFAULT_ADAPTER, NO_ADAPTER } from '../nn/lora.ts';
import type { Host } from '../runtime/host.ts';
import { type OpenedModel, withModel } from '../train/open-model.ts';
import { HoldfastError } from '../util/errors.ts';
import { localModel } from './model-source.ts';

export interface AdapterFlags {
  base?: string;
  lora?: string;
}

export function addAdapterOptions(command: Command): Command {
  return command
    .option('--lora <dir>', 'with the adapter in this folder; none: without the one that DIR has')
    .option('--base <dir>', 'the model that an adapter belongs to (default: the one that it names)');
}

/** A model, and where it lies. */
export interface NamedModel extends OpenedModel {
  /** The folder or zip that its name stands for. */
  readonly from: string;
  /** There where the model is wanted without the adapter that it has. */
  readonly without: { readonly adapter?: string };
}

/** Lends a model to `use`, as `withModel` does. */
export async function withNamedModel<T>(
  host: Host,
  name: string,
  flags: AdapterFlags,
  use: (opened: NamedModel) => Promise<T>,
): Promise<T> {
  const from = await localModel(host, name);
  const base = flags.base === undefined ? undefined : await localModel(host, flags.base);
  const lora = flags.lora === undefined || flags.lora === NO_ADAPTER ? undefined : await localModel(host, flags.lora);
  const adapters = lora === undefined ? {} : { [DEFAULT_ADAPTER]: lora };
  const without = flags.lora === NO_ADAPTER ? { adapter: NO_ADAPTER } : {};
  return withModel(host.files, from, { base, adapters }, (opened) => {
    if (flags.lora === NO_ADAPTER && opened.borrowsHead)
      throw new HoldfastError(`--lora none: ${name} has its head from the adapter, and tells nothing without`);
    return use({ ...opened, from, without });
  });
}
