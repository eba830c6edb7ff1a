// A table that a model reads its tokens from and tells them apart by: its gradient is a sum over the head's product and the
// embedding's rows, of one micro-batch after the other. Where micro-batches go layer by layer all heads come before all
// embeddings; so that the sum keeps its order, the head's part of all but the first is put off to the embedding, where the
// gradients of logits are made again, tile by tile. A rewrite of their programs; the same products, hence the same bits.

import { operandList } from '../kernels/by-problem.ts';
import { type EmbeddingBackwardProblem, embeddingBackward } from '../kernels/embedding.ts';
import { matmul } from '../kernels/matmul.ts';
import type { MatmulProblem } from '../kernels/matmul-problem.ts';
import { type MicroBatches, reorderedGradient } from './layer-major.ts';
import { type Instruction, makeTensor, type Program, type Tensor, type TensorInstruction } from './program.ts';

/** The head's part of the gradient of some rows, and what makes what it is a product of. */
interface Tile {
  readonly products: readonly {
    readonly product: TensorInstruction;
    /** What it is a product of: the gradient of the logits. */
    readonly a: Tensor;
    readonly makers: readonly TensorInstruction[];
  }[];
  readonly fromRow: number;
  readonly toRow: number;
}

/** The programs with the sums of such a gradient side by side; as they are where there is none. */
export function withSharedTables(micros: MicroBatches): MicroBatches {
  const gradient = reorderedGradient(micros);
  if (!gradient) return micros;
  return { first: putOff(micros.first, gradient, true), next: putOff(micros.next, gradient, false) };
}

/** `isFirst`: its head comes before all embeddings anyway. */
function putOff(program: Program, gradient: Tensor, isFirst: boolean): Program {
  const embedded = program.instructions.find((instruction) => isEmbedding(instruction, gradient));
  if (!embedded) return program;
  const tiles = tilesOf(program, gradient, embedded.problem as EmbeddingBackwardProblem);
  const products = new Set(tiles.flatMap((tile) => tile.products.map(({ product }) => product)));
  const instructions = program.instructions.flatMap((instruction): Instruction[] => {
    if (instruction === embedded) return tiles.flatMap((tile) => together(tile, embedded, isFirst));
    const isPutOff = !isFirst && instruction.op === 'dispatch' && products.has(instruction);
    return isPutOff ? [] : [instruction];
  });
  return { ...program, instructions };
}

const isEmbedding = (instruction: Instruction, gradient: Tensor): instruction is TensorInstruction =>
  instruction.op === 'dispatch' &&
  instruction.kernel === embeddingBackward &&
  instruction.operands['dweight'] === gradient;

function tilesOf({ instructions }: Program, gradient: Tensor, { width }: EmbeddingBackwardProblem): Tile[] {
  const tiles = new Map<string, Tile & { readonly products: Tile['products'][number][] }>();
  const dispatches = instructions.filter((instruction) => instruction.op === 'dispatch');
  dispatches.forEach((product, i) => {
    const { layer, kernel, problem, operands } = product;
    const a = operands['a'];
    if (layer === undefined || kernel !== matmul || !a || operands['c'] !== gradient) return;
    const { cOffset = 0, M, N } = problem as MatmulProblem;
    const makers = dispatches
      .slice(0, i)
      .filter((maker) => maker.layer === layer && maker.phase === 'backward' && writes(maker, a));
    const fromRow = cOffset / width;
    const tile = tiles.get(layer) ?? { products: [], fromRow, toRow: fromRow + (M * N) / width };
    tile.products.push({ product, a, makers });
    tiles.set(layer, tile);
  });
  return [...tiles.values()];
}

const writes = ({ kernel, problem, operands }: TensorInstruction, tensor: Tensor): boolean =>
  operandList(kernel, problem).some(([name, { access }]) => access !== 'read' && operands[name] === tensor);

/** All that a micro-batch adds to the rows of a tile. */
function together({ products, fromRow, toRow }: Tile, embedded: TensorInstruction, isFirst: boolean): Instruction[] {
  const layer = `${embedded.label} from row ${fromRow}`;
  const made = isFirst
    ? []
    : products.flatMap(({ product, a, makers }): Instruction[] => {
        const fresh = makeTensor(`${a.name} again`, a.shape, 'activation', a.type);
        const onFresh = (instruction: TensorInstruction): TensorInstruction => ({
          ...instruction,
          layer,
          operands: Object.fromEntries(
            Object.entries(instruction.operands).map(([name, tensor]) => [name, tensor === a ? fresh : tensor]),
          ),
        });
        const again = makers.map((maker) => ({ ...onFresh(maker), label: `${maker.label}, again`, again: true }));
        return [...again, onFresh(product)];
      });
  return [...made, { ...embedded, problem: { ...embedded.problem, fromRow, toRow }, layer }];
}
