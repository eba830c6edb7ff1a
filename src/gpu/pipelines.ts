// Compute pipelines, one per distinct (shader, constants), compiled once and shared. The layout is made
// from the shader's own declarations, so that any number of bind groups fit any number of pipelines.

import { assert } from '../util/errors.ts';
import { GPUShaderStage } from './constants.ts';
import { compiledText, reflect, type ShaderInterface } from './shader.ts';

export interface Pipeline {
  readonly pipeline: GPUComputePipeline;
  readonly layout: GPUBindGroupLayout;
  readonly shader: ShaderInterface;
}

export class Pipelines {
  readonly #device: GPUDevice;
  readonly #pipelines = new Map<string, Promise<Pipeline>>();
  #compiled = 0;

  constructor(device: GPUDevice) {
    this.#device = device;
  }

  /** Pipelines compiled since the device was opened. */
  get compiled(): number {
    return this.#compiled;
  }

  /**
   * The pipeline for a shader text with its constants, and with these of its bindings of one range. Errors: the compiler's
   * messages, with line numbers.
   */
  get(
    label: string,
    source: string,
    constants: Readonly<Record<string, number>>,
    together: readonly string[] = [],
  ): Promise<Pipeline> {
    const code = compiledText(source, constants, together);
    let pipeline = this.#pipelines.get(code);
    if (!pipeline) {
      pipeline = this.#compile(label, code);
      this.#pipelines.set(code, pipeline);
      this.#compiled++;
    }
    return pipeline;
  }

  async #compile(label: string, code: string): Promise<Pipeline> {
    const shader = reflect(code);
    const entries: GPUBindGroupLayoutEntry[] = [...shader.bindings].map(([binding, { access }]) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: access === 'read' ? 'read-only-storage' : 'storage' },
    }));
    if (shader.params.length > 0) {
      entries.push({ binding: 0, visibility: GPUShaderStage.COMPUTE, buffer: { type: 'uniform' } });
    }
    const layout = this.#device.createBindGroupLayout({ label, entries });
    const module = this.#device.createShaderModule({ label, code });
    const errors = (await module.getCompilationInfo()).messages.filter((message) => message.type === 'error');
    assert(
      errors.length === 0,
      `shader ${label}: ${errors.map((e) => `${e.lineNum}:${e.linePos} ${e.message} in "${code.split('\n')[e.lineNum - 1]}"`).join('; ')}`,
    );
    const pipeline = await this.#device.createComputePipelineAsync({
      label,
      layout: this.#device.createPipelineLayout({ label, bindGroupLayouts: [layout] }),
      compute: { module, entryPoint: 'main' },
    });
    return { pipeline, layout, shader };
  }
}
