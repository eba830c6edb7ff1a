// Sources of WebGPU: npm `webgpu` (Dawn) in Node, the runtime's own in Deno; the system's GPUs, its software adapters,
// and the embedded one.

import process from 'node:process';
import { at } from '../../util/at.ts';
import { HoldfastError, messageOf } from '../../util/errors.ts';
import type { GPUSource, GPUSourceOptions } from '../host.ts';
import { withNaps } from './dawn-polls.ts';
import { embeddedDriver, withDriver } from './embedded-driver.ts';
import { files } from './files.ts';
import { withoutNotices } from './native-stderr.ts';

/** By default Dawn rounds timestamps to 65 microseconds, shows no feature that is not WebGPU's yet, and no halves on NVIDIA's GPUs. */
const SHOWN = ['allow_unsafe_apis', 'vulkan_enable_f16_on_nvidia'];
/**
 * It compares each index with its array's length, as texts of others need it. These here are the project's own, and in none of them
 * an index is past an end (test/kernels/bounds). SwiftShader spends a fifth of its time on that.
 */
const UNCHECKED = ['disable_robustness'];

function dawnOptions(adapter = '', foreign = false): string[] {
  const isChecked = foreign || !/swiftshader/i.test(adapter);
  return [
    'disable-dawn-features=timestamp_quantization',
    `enable-dawn-features=${[...SHOWN, ...(isChecked ? [] : UNCHECKED)].join()}`,
    ...(adapter === '' ? [] : [`adapter=${adapter}`]),
  ];
}

/**
 * Dawn instances, by the adapter that they show: each has threads, files and megabytes for as long as the process lives, since an adapter outlives
 * the call that opened its instance. So devices that come and go share one, until it fails or has lost a device.
 */
const instances = new Map<string, GPU>();
/** Those with other instances in their place. */
const former: GPU[] = [];
/** The names of the system's adapters. */
let adapterNames: string[] | undefined;

export async function nodeSources(): Promise<GPUSource[]> {
  const dawn = await import('webgpu').catch((error) => {
    throw new HoldfastError(`npm package "webgpu" cannot be loaded (${messageOf(error)}); run npm install`);
  });
  const instance = (adapter: string | undefined, { foreign }: GPUSourceOptions, manifest?: string) => {
    const options = dawnOptions(adapter, foreign);
    const key = JSON.stringify([manifest, ...options]);
    const found = instances.get(key);
    if (found) return found;
    const gpu = dawn.create(options) as unknown as GPU;
    const replace = () => {
      if (instances.get(key) !== gpu) return;
      instances.delete(key);
      former.push(gpu);
      adapterNames = undefined;
    };
    instances.set(key, gpu);
    const requestAdapter = gpu.requestAdapter.bind(gpu);
    gpu.requestAdapter = async (options) => {
      try {
        // One after the other: no request of another source finds this one's driver alone.
        const found = await withoutNotices(() => withDriver(manifest, () => requestAdapter(options)));
        if (found) onLoss(found, replace);
        return found;
      } catch (error) {
        replace();
        throw error;
      }
    };
    return manifest !== undefined || isSoftware(adapter ?? '') ? withNaps(gpu) : gpu;
  };
  const system: GPUSource[] = [];
  if (await systemHasLoader()) {
    const names = adapterNames ?? (await dawnAdapterNames((adapter) => instance(adapter, {})));
    adapterNames = names;
    for (const name of names)
      system.push({ name, embedded: false, open: async (options = {}) => instance(name, options) });
    if (system.length === 0)
      system.push({ name: 'system', embedded: false, open: async () => instance(undefined, {}) });
  }
  const embedded: GPUSource = {
    name: 'embedded SwiftShader',
    embedded: true,
    open: async (options = {}) => instance('SwiftShader', options, await embeddedDriver()),
  };
  // Dawn's own order within a backend prefers discrete GPUs; software adapters go last.
  return [
    ...system.filter(({ name }) => !isSoftware(name)),
    ...system.filter(({ name }) => isSoftware(name)),
    embedded,
  ];
}

const isSoftware = (name: string): boolean => /llvmpipe|swiftshader|software|basic render/i.test(name);

/** Calls back where a device of this adapter is lost, and was not closed. */
function onLoss(adapter: GPUAdapter, lost: () => void): void {
  const requestDevice = adapter.requestDevice.bind(adapter);
  adapter.requestDevice = async (descriptor) => {
    const device = await requestDevice(descriptor);
    void device.lost.then(({ reason }) => {
      if (reason !== 'destroyed') lost();
    });
    return device;
  };
}

/** Whether Dawn would find a Vulkan loader; where it does not, it complains on standard error and finds no GPU. */
async function systemHasLoader(): Promise<boolean> {
  if (process.platform !== 'linux') return true;
  const koffi = await import('koffi').catch(() => undefined);
  if (!koffi) return true;
  try {
    koffi.default.load('libvulkan.so.1');
    return true;
  } catch {
    return false;
  }
}

/** Dawn names every adapter only in the error for one that is not there. */
async function dawnAdapterNames(instance: (adapter: string) => GPU): Promise<string[]> {
  try {
    await instance('(none has this name)').requestAdapter();
    return [];
  } catch (error) {
    const names = [...messageOf(error).matchAll(/name: '(.*)'/g)].map((match) => at(match, 1));
    return [...new Set(names)];
  }
}

/** The source whose adapters Deno shows in this process. */
let shown: string | undefined;

/** Deno makes one WebGPU instance a process, at the first request: what is wanted is set for that long. */
export async function denoSources(): Promise<GPUSource[]> {
  const source = (name: string, embedded: boolean): GPUSource => ({
    name,
    embedded,
    open: async () => {
      if (!navigator.gpu) throw new HoldfastError('Deno shows no navigator.gpu; run it with --unstable-webgpu');
      const manifest = embedded ? await embeddedDriver() : undefined;
      if (shown !== undefined && shown !== name)
        throw new HoldfastError(
          `Deno shows the adapters of one source a process, here those of ${shown}; name the adapter in another process`,
        );
      shown = name;
      const { gpu } = navigator;
      const requestAdapter = (options?: GPURequestAdapterOptions) =>
        withDriver(manifest, () => gpu.requestAdapter(options));
      return new Proxy(gpu, { get: (_, key) => (key === 'requestAdapter' ? requestAdapter : Reflect.get(gpu, key)) });
    },
  });
  const [system, embedded] = [source('system', false), source('embedded SwiftShader', true)];
  return (await systemHasDriver()) ? [system, embedded] : [embedded];
}

/** Where a driver's manifest lies. */
const MANIFESTS = ['/usr/share/vulkan/icd.d', '/etc/vulkan/icd.d'];

/**
 * On Linux: a render device, or a software driver's manifest; a manifest of any, where Deno was not given all permissions, without which
 * it shows no device. Elsewhere the system always has WebGPU.
 */
async function systemHasDriver(): Promise<boolean> {
  if (process.platform !== 'linux' || process.env['VK_DRIVER_FILES']) return true;
  const manifests: string[] = [];
  for (const folder of MANIFESTS) if (await files.stat(folder)) manifests.push(...(await files.list(folder)));
  try {
    if ((await files.stat('/dev/dri')) || (await files.stat('/dev/nvidia0'))) return true;
  } catch (error) {
    if (error instanceof HoldfastError) return manifests.length > 0;
    throw error;
  }
  return manifests.some((name) => name.startsWith('lvp_icd'));
}
