// Compiles the kernels of training steps on a GPU that is not there (null_gpu.c), one after the other, and reads what the
// driver's compiler says of each. Runs in a process of its own: a driver reads its environment once.

import { readFileSync, truncateSync } from 'node:fs';
import { bytesMovedBy, storedOperands } from '../../src/engine/compile/operations.ts';
import { type Device, openDevice } from '../../src/gpu/device.ts';
import { compiledText } from '../../src/gpu/shader.ts';
import { mayServe, type StoredOperands, type Variant } from '../../src/kernels/kernel.ts';
import { readingNarrow } from '../../src/kernels/stored.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { type Compiled, parseCompiled } from './machine-code.ts';
import { dispatchesOf, STEPS } from './steps.ts';

/** A variant's shader, as it was compiled. */
export interface CompiledVariant extends Compiled {
  readonly kernel: string;
  readonly variant: string;
  /** The first problem that it is for. */
  readonly problem: object;
  /** How its operands are stored, where not as floats. */
  readonly stored: StoredOperands;
}

/** Dispatches of a step that launch the same number of waves. */
export interface Launch {
  readonly step: string;
  readonly kernel: string;
  /** The first one's. */
  readonly label: string;
  readonly dispatches: number;
  /** Of one of them, in each variant that may be chosen for it. */
  readonly waves: Readonly<Record<string, number>>;
  /** What the first one moves at least. */
  readonly bytes: number;
}

export interface LabReport {
  readonly adapter: string;
  readonly variants: readonly CompiledVariant[];
  readonly launches: readonly Launch[];
}

/** Of kernels whose name contains `wanted`. `path`: where the driver's compiler is told to write. */
export async function compileSteps(path: string, wanted: string): Promise<LabReport> {
  const device = await openDevice(headlessHost(), { adapter: 'radv' });
  const compiler = new Compiler(device, path);
  const launches = new Map<string, Launch>();
  for (const step of STEPS) {
    for (const dispatch of dispatchesOf(step)) {
      const { kernel, problem, whole, label } = dispatch;
      if (!kernel.name.includes(wanted)) continue;
      const stored = storedOperands(dispatch);
      const waves: Record<string, number> = {};
      for (const variant of kernel.variants as readonly Variant<object>[]) {
        if (!mayServe(variant, whole, device.traits, stored)) continue;
        const { wave } = await compiler.compile(kernel.name, variant, problem, stored);
        const { workgroups, shader, constants } = variant.dispatch(problem, device.traits);
        const invocations = workgroupSize(compiledText(shader, constants));
        waves[variant.name] = workgroups.reduce((product, n) => product * n, 1) * Math.ceil(invocations / wave);
      }
      const key = `${step.name} ${kernel.name} ${JSON.stringify(waves)}`;
      const before = launches.get(key);
      const first = {
        step: step.name,
        kernel: kernel.name,
        label,
        bytes: bytesMovedBy(dispatch),
        waves,
      };
      launches.set(key, { ...first, ...before, dispatches: (before?.dispatches ?? 0) + 1 });
    }
  }
  return { adapter: device.adapter.name, variants: [...compiler.known.values()], launches: [...launches.values()] };
}

/** Each shader is compiled once. */
class Compiler {
  readonly known = new Map<string, CompiledVariant>();
  readonly #device: Device;
  readonly #path: string;

  constructor(device: Device, path: string) {
    this.#device = device;
    this.#path = path;
  }

  async compile(
    kernel: string,
    variant: Variant<object>,
    problem: object,
    stored: StoredOperands,
  ): Promise<CompiledVariant> {
    const dispatch = variant.dispatch(problem, this.#device.traits);
    const { constants } = dispatch;
    const shader = readingNarrow(dispatch.shader, stored);
    const key = compiledText(shader, constants);
    const before = this.known.get(key);
    if (before) return before;
    truncateSync(this.#path);
    await this.#device.pipelines.get(`${kernel}.${variant.name}`, shader, constants);
    const compiled = parseCompiled(readFileSync(this.#path, 'utf8'));
    const made = { kernel, variant: variant.name, problem, stored, ...compiled };
    this.known.set(key, made);
    return made;
  }
}

/** Invocations of a workgroup, as the shader says; a constant of the prelude is known by its name. */
function workgroupSize(code: string): number {
  const size = /@workgroup_size\(([^)]*)\)/.exec(code)?.[1] ?? '1';
  return size.split('*').reduce((product, factor) => {
    const name = factor.trim().replace(/u$/, '');
    return product * Number(/^\d+$/.test(name) ? name : new RegExp(`const ${name} = (\\d+)u`).exec(code)?.[1]);
  }, 1);
}
