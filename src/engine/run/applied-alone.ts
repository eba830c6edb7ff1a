// Trial of a device: whether its kernels give an activation by itself the bits that it has at the end of a product. Both are one
// function of the same float; but a GPU's compiler may contract a product and a sum to one rounding in one kernel and not in the other, and
// WGSL allows it. So it is tried, once for a device, with each variant of both.

import type { Device } from '../../gpu/device.ts';
import type { BufferRange } from '../../gpu/dispatch.ts';
import type { Ending } from '../../graph/makers.ts';
import { ACTIVATIONS, type ActivationName, type ElementwiseProblem } from '../../kernels/activations.ts';
import { type Kernel, mayServe, type StoredOperands, type Variant } from '../../kernels/kernel.ts';
import { matmul } from '../../kernels/matmul.ts';
import { epiloguesOf, type MatmulProblem } from '../../kernels/matmul-problem.ts';
import { Random } from '../../util/random.ts';
import { isProven } from '../compile/proof.ts';
import { Scratch } from '../compile/scratch.ts';

/**
 * Rows and columns of what is compared, of few rows more columns; read in fours, and one by one. Some hundred thousand values: what
 * is rounded otherwise may be so in few of them.
 */
const SIZES = {
  inFours: [
    { M: 512, N: 512, K: 4 },
    { M: 4, N: 1024, K: 4 },
  ],
  oneByOne: [
    { M: 512, N: 513, K: 5 },
    { M: 63, N: 65, K: 5 },
    { M: 4, N: 1025, K: 5 },
    { M: 3, N: 1025, K: 5 },
  ],
} as const;
/** How far sums go, on either side of where an activation does something; in the row after half as far, and so on. */
const REACH = 12;
const HALVINGS = 24;

/** How weights may be stored, for more variants to be chosen. */
const STORED: StoredOperands = { b: 'f16' };

const known = new WeakMap<Device, Map<string, Promise<boolean>>>();

/**
 * Whether these have the same bits either way, with all variants of the product and of the activation that may be chosen. `endings`
 * is asked where it matters. Errors: the signal's reason.
 */
export async function appliesAlone(
  device: Device,
  endings: () => Iterable<Ending>,
  signal?: AbortSignal,
): Promise<boolean> {
  // Adapters that run shaders on a CPU round each operation.
  if (device.adapter.software) return true;
  const found = known.get(device) ?? new Map<string, Promise<boolean>>();
  known.set(device, found);
  for (const ending of endings()) {
    signal?.throwIfAborted();
    const key = Object.values(ending).join();
    const same = found.get(key) ?? isSame(device, ending);
    found.set(key, same);
    // What failed is tried again.
    same.catch(() => found.delete(key));
    if (!(await same)) return false;
  }
  return true;
}

async function isSame(device: Device, { activation, layout, inFours }: Ending): Promise<boolean> {
  const { traits } = device;
  const { forward } = ACTIVATIONS[activation];
  const asked: Promise<boolean>[] = [];
  for (const size of SIZES[inFours ? 'inFours' : 'oneByOne']) {
    const problem: MatmulProblem = { layout, ...size, epilogue: epiloguesOf(activation).forward };
    const elements = { size: size.M * size.N };
    for (const product of matmul.variants) {
      if (!mayServe(product, problem, traits, STORED) || !(await isProven(device, matmul, product))) continue;
      for (const alone of forward.variants) {
        if (mayServe(alone, elements, traits)) {
          asked.push(isSameIn(device, activation, product, alone, problem));
        }
      }
    }
  }
  // Together: a GPU's compiler takes several shaders at once.
  const failed = (await Promise.allSettled(asked)).find((answer) => answer.status === 'rejected');
  if (failed) throw failed.reason;
  return (await Promise.all(asked)).every(Boolean);
}

async function isSameIn(
  device: Device,
  name: ActivationName,
  variant: Variant<MatmulProblem>,
  byItself: Variant<ElementwiseProblem>,
  problem: MatmulProblem,
): Promise<boolean> {
  const { M, N, K } = problem;
  const random = new Random(1, 'activations by themselves');
  const draw = (count: number, reach: (i: number) => number) =>
    Float32Array.from({ length: count }, (_, i) => reach(i) * (2 * random.uniform() - 1));
  const scratch = new Scratch(device, (part) => `${part} of ${name}`);
  try {
    const bound = async <P>(kernel: Kernel<P>, one: Variant<P>, p: P, operands: Record<string, BufferRange>) => {
      const dispatch = one.dispatch(p, device.traits);
      const pipeline = await device.pipelines.get(`${kernel.name}.${one.name}`, dispatch.shader, dispatch.constants);
      return scratch.bind(kernel.name, pipeline, dispatch, operands);
    };
    const operands = {
      a: scratch.holding(
        'a',
        draw(M * K, (i) => 2 ** -(Math.floor(i / K) % HALVINGS)),
      ),
      b: scratch.holding(
        'b',
        draw(K * N, () => REACH / K),
      ),
      bias: scratch.holding(
        'bias',
        draw(N, (column) => column % 2),
      ),
      c: scratch.holding('c', new Float32Array(M * N)),
      preactivation: scratch.holding('preactivation', new Float32Array(M * N)),
    };
    const { forward } = ACTIVATIONS[name];
    const applied = { x: operands.preactivation, y: scratch.holding('y', new Float32Array(M * N)) };
    scratch.run([
      await bound(matmul, variant, problem, operands),
      await bound(forward, byItself, { size: M * N }, applied),
    ]);
    const bitsOf = async (range: BufferRange) => new Uint32Array(await scratch.read(range));
    const [product, alone] = [await bitsOf(operands.c), await bitsOf(applied.y)];
    return product.every((bits, i) => bits === alone[i]);
  } finally {
    scratch.close();
  }
}
