// The device of this process, lent to each command that runs in it: what one has compiled is there for the next, which a
// software adapter would compile for seconds. Each has buffers of its own, and is rid of them when it closes its device.

import type { GPUSource } from '../src/runtime/host.ts';
import { testDevice } from './harness.ts';
import { testHost } from './host.ts';

/** What has been compiled on a device, by its WGSL: the engine makes a pipeline's layout of that, too. */
const compiled = new WeakMap<GPUDevice, Map<string, Promise<GPUComputePipeline>>>();

/** The host's sources; their adapters open a share of the device under test. */
export async function sharedGPUSources(): Promise<GPUSource[]> {
  const sources = await testHost.gpuSources();
  return sources.map((source) => ({ ...source, open: async () => sharing(await source.open()) }));
}

function sharing(gpu: GPU): GPU {
  const requestAdapter = async (options?: GPURequestAdapterOptions) => {
    const adapter = await gpu.requestAdapter(options);
    return adapter && standIn(adapter, { requestDevice: async () => shareOf((await testDevice()).gpu) });
  };
  return standIn(gpu, { requestAdapter });
}

function shareOf(gpu: GPUDevice): GPUDevice {
  const buffers = new Set<GPUBuffer>();
  const pipelines = compiled.get(gpu) ?? new Map<string, Promise<GPUComputePipeline>>();
  compiled.set(gpu, pipelines);
  const codes = new Map<GPUShaderModule, string>();
  const listeners: [string, EventListenerOrEventListenerObject][] = [];
  return standIn(gpu, {
    createBuffer: (descriptor) => {
      const buffer = gpu.createBuffer(descriptor);
      buffers.add(buffer);
      return buffer;
    },
    createShaderModule: (descriptor) => {
      const module = gpu.createShaderModule(descriptor);
      codes.set(module, descriptor.code);
      return module;
    },
    createComputePipelineAsync: (descriptor) => {
      const code = codes.get(descriptor.compute.module) ?? '';
      const pipeline = pipelines.get(code) ?? gpu.createComputePipelineAsync(descriptor);
      pipelines.set(code, pipeline);
      return pipeline;
    },
    addEventListener: (type: string, listener: EventListenerOrEventListenerObject) => {
      listeners.push([type, listener]);
      gpu.addEventListener(type, listener);
    },
    destroy: () => {
      for (const [type, listener] of listeners) gpu.removeEventListener(type, listener);
      for (const buffer of buffers) buffer.destroy();
      return undefined;
    },
  });
}

/** Like `real`, but for some of its methods. */
function standIn<T extends object>(real: T, own: Partial<T>): T {
  return new Proxy(real, {
    get(_, name) {
      if (name in own) return own[name as keyof T];
      const value = real[name as keyof T];
      return typeof value === 'function' ? value.bind(real) : value;
    },
  });
}
