// A program made ready for one device: pipelines compiled, uniforms written, bind groups made. Running it
// encodes its dispatches and nothing else: no buffer, no bind group, no pipeline.

import type { Device } from '../gpu/device.ts';
import { type BoundDispatch, bindDispatch, encode, packUniforms } from '../gpu/dispatch.ts';
import type { Instruction, Program, Tensor } from '../graph/graph.ts';
import type { Placement } from '../graph/liveness.ts';
import type { KernelChoices } from './choices.ts';
import type { Storage } from './storage.ts';

export interface Step {
  readonly instruction: Instruction;
  readonly bound: BoundDispatch;
}

export class Executable {
  readonly name: string;
  readonly steps: readonly Step[];
  readonly #storage: Storage;
  readonly #placement: Placement;

  private constructor(name: string, steps: readonly Step[], storage: Storage, placement: Placement) {
    this.name = name;
    this.steps = steps;
    this.#storage = storage;
    this.#placement = placement;
  }

  /** Compiles programs that share one storage: places their activations, chooses variants, binds. */
  static async compile(
    device: Device,
    storage: Storage,
    choices: KernelChoices,
    programs: readonly Program[],
  ): Promise<Executable[]> {
    return device.guarded('the training state', async () => {
      const placements = storage.placeActivations(programs);
      await choices.settle(programs.flatMap(({ instructions }) => instructions));
      const executables = [];
      for (const [i, program] of programs.entries()) {
        executables.push(await link(device, storage, choices, program, placements[i] as Placement));
      }
      return executables;
    });

    async function link(
      device: Device,
      storage: Storage,
      choices: KernelChoices,
      program: Program,
      placement: Placement,
    ): Promise<Executable> {
      const dispatches = await Promise.all(
        program.instructions.map(async ({ kernel, problem }) => {
          const variant = choices.variant(kernel, problem);
          const dispatch = variant.dispatch(problem, device.traits);
          const label = `${kernel.name}.${variant.name}`;
          return { label, dispatch, pipeline: await device.pipelines.get(label, dispatch.shader, dispatch.constants) };
        }),
      );
      const data = packUniforms(dispatches);
      const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
      const uniforms = storage.buffer(`${program.name} uniforms`, data.byteLength, usage);
      device.gpu.queue.writeBuffer(uniforms, 0, data);
      const steps = program.instructions.map((instruction, i) => {
        const { label, pipeline, dispatch } = dispatches[i] as (typeof dispatches)[number];
        const ranges = Object.fromEntries(
          Object.entries(instruction.operands).map(([name, tensor]) => [name, storage.resolve(tensor, placement)]),
        );
        const name = `${label} ${instruction.label}`;
        const bound = bindDispatch(device, name, pipeline, dispatch.workgroups, ranges, uniforms, i);
        return { instruction, bound };
      });
      return new Executable(program.name, steps, storage, placement);
    }
  }

  /** Encodes the whole program as one compute pass. */
  encode(encoder: GPUCommandEncoder): void {
    const pass = encoder.beginComputePass({ label: this.name });
    for (const { bound } of this.steps) encode(pass, bound);
    pass.end();
  }

  /** One of the program's outputs, or any persistent tensor. Waits for the queue. */
  read(tensor: Tensor): Promise<Float32Array<ArrayBuffer>> {
    return this.#storage.read(tensor, this.#placement);
  }
}
