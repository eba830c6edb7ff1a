// The programs of generation over a cache of keys and values, and generation alone as a workload: a model's weights, and caches
// that stay on the GPU, or lie below it and are brought up for their layer, as the budget allows. It needs no device.
//
// Invariant: wherever a cache lies, the same bits are read of it.

import { type Pass, readingPass } from '../../engine/compile/pass.ts';
import { type ActivationChoice, NO_READBACK, type Workload } from '../../engine/compile/workload.ts';
import type { Sharding } from '../../engine/ranks/sharding.ts';
import { checkWriter } from '../../formats/families/index.ts';
import type { ActivationMode } from '../../graph/activations.ts';
import { Graph } from '../../graph/graph.ts';
import { movedCache, withMovedCaches } from '../../graph/moved-caches.ts';
import type { Cache } from '../../graph/operators/attention.ts';
import { logits as logitsOf } from '../../graph/operators/cross-entropy.ts';
import { makeTokens, type Tokens } from '../../graph/operators/embedding.ts';
import { cut, withResults } from '../../graph/pipeline.ts';
import { bytesOf, makeTensor, type Program, type Tensor } from '../../graph/program.ts';
import { copyRows } from '../../kernels/copy-rows.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { onlyTokens } from '../../nn/inputs.ts';
import { NO_ADAPTER } from '../../nn/lora.ts';
import { lookup, type Model, parameterTensors } from '../../nn/model.ts';
import type { ModelStages } from '../../nn/pipeline-parallel.ts';
import { assert } from '../../util/errors.ts';

const BLOCK = 16;

/** What programs of generation read: as many tokens of each sequence. */
export interface GenerationInputs extends Tokens {
  /** Of each sequence, (1) each. */
  readonly positions: readonly Tensor[];
  /** Where there are several sequences, the position of each token, as what is looked up. */
  readonly places?: Tokens;
}

/** The programs of generation: for each choice of an adapter, one for each of `inputs`, longest first. */
export interface Generation {
  readonly inputs: readonly GenerationInputs[];
  readonly programs: readonly GenerationProgram[];
  /** Of each layer, of each of its sequences: keys and values of what came before. */
  readonly caches: readonly Cache[];
  /** (B, V) of the last token of each sequence. */
  readonly logits: Tensor;
  /** Positions in the cache. */
  readonly capacity: number;
}

export interface GenerationProgram extends Program {
  /** The adapter in use; undefined where the model has none. */
  readonly adapter: string | undefined;
  readonly tokens: GenerationInputs;
}

/**
 * Traces generation over a cache of `capacity` positions; `stages`: as one of them does it; `sequences`: of so many texts at
 * once, each with positions and a cache of its own. Errors: HoldfastError for a model that writes no text.
 */
export function traceGeneration(model: Model, capacity: number, stages?: ModelStages, sequences = 1): Generation {
  checkWriter(model.config);
  const { layers, kvHeads, headSize, vocabulary } = model.shape;
  const parameters = parameterTensors(model, false);
  const nameOf = (what: string, sequence: number) => (sequences === 1 ? what : `${what} of text ${sequence}`);
  const each = <T>(length: number, make: (i: number) => T): T[] => Array.from({ length }, (_, i) => make(i));
  const cache = (name: string) => makeTensor(name, [1, capacity, kvHeads * headSize], 'persistent');
  const caches = each(layers, (i) =>
    each(sequences, (b): Cache => {
      return { capacity, keys: cache(nameOf(`keys ${i}`, b)), values: cache(nameOf(`values ${i}`, b)) };
    }),
  );
  const logits = makeTensor('logits', [sequences, vocabulary], 'persistent');
  const inputs = (capacity >= BLOCK ? [BLOCK, 1] : [1]).map((length): GenerationInputs => {
    const tokens = makeTokens(sequences, length);
    if (sequences === 1) return { ...tokens, positions: [tokens.position] };
    const positions = each(sequences, (b) => makeTensor(nameOf('position', b), [1], 'persistent', 'u32'));
    return { ...tokens, positions, places: makeTokens(sequences, length, 'positions') };
  });
  const { adapters = [] } = model;
  const choices = adapters.length > 0 ? [...adapters.map(({ name }) => name), NO_ADAPTER] : [undefined];
  const programs = choices.flatMap((adapter) =>
    inputs.map((tokens): GenerationProgram => {
      const g = new Graph(passNameOf({ tokens, adapter }));
      const options = { caches, ...(adapter !== undefined && { adapter }) };
      const { hidden, head } = model.forward(g, onlyTokens(tokens, tokens.places), lookup(parameters), options);
      logitsOf(g, lastOf(g, hidden), head, logits, sequences === 1 ? tokens.seq - 1 : 0);
      const whole = g.program();
      const program = stages ? withResults(cut(whole, stages, stages.place.rank), [logits], stages.size) : whole;
      return { ...program, adapter, tokens };
    }),
  );
  return { inputs, programs, caches: caches.flat(), logits, capacity };
}

/** (B, T, C) -> (B, 1, C): the last row of each of several sequences. One has it where it is. */
function lastOf(g: Graph, hidden: Tensor): Tensor {
  const [batch = 1, seq = 1, width = 1] = hidden.shape;
  if (batch === 1 || seq === 1) return hidden;
  const y = g.activation('last of each', [batch, 1, width]);
  const problem = { batch, rows: 1, width, xRows: seq, xFirst: seq - 1, yRows: 1, yFirst: 0 };
  g.emit(copyRows, problem, { x: hidden, y }, 'last of each');
  return y;
}

/** A pass of generation is named for the tokens that it takes at once, and the adapter in use. */
export const passNameOf = ({
  tokens: { seq },
  adapter,
}: Pick<GenerationProgram, 'adapter'> & { readonly tokens: Pick<Tokens, 'seq'> }) =>
  `generate ${adapter === undefined ? seq : `${seq} with ${adapter}`}` as const;

export type GenerationPasses = Readonly<Record<ReturnType<typeof passNameOf>, Pass>>;

export const generationPasses = ({ programs }: Generation, map: ChunkMap, sharding?: Sharding): GenerationPasses =>
  Object.fromEntries(programs.map((program) => [passNameOf(program), readingPass(program, map, sharding)]));

/** The modes of a layer's cache: it stays on the GPU, or it is moved. */
const PLACES: readonly ActivationMode[] = ['keep', 'offload'];

/** `place`: of all caches. @default whatever the budget asks for, which other activation modes leave it to, too */
export function generationWorkload(
  { parameters }: Pick<Model, 'parameters'>,
  generation: Generation,
  place?: ActivationMode | 'auto',
): Workload<GenerationPasses> {
  const { caches, programs } = generation;
  const only = PLACES.filter((each) => each === place);
  const menu = only.length > 0 ? only : PLACES;
  const moved = caches.map(({ keys, values }) => [movedCache(keys), movedCache(values)]);
  const bytes = caches.map(({ keys, values }) => bytesOf(keys) + bytesOf(values));
  const sum = (some: readonly number[]) => some.reduce((a, b) => a + b, 0);
  const main = programs.find(({ tokens }) => tokens.seq === 1);
  assert(main, 'one program takes a single token');
  const known = new Map<string, Workload<GenerationPasses>>();
  const placed = (modes: readonly ActivationMode[]): Workload<GenerationPasses> => {
    const before = known.get(modes.join());
    if (before) return before;
    const below = moved.flatMap((layer, i) => (modes[i] === 'offload' ? layer : []));
    const own = { ...generation, programs: programs.map((program) => withMovedCaches(program, below)) };
    const activations: ActivationChoice<GenerationPasses> = {
      ...{ modes, menu, with: placed, rounds: 1 },
      mainOf(passes) {
        const pass = passes[passNameOf(main)];
        assert(pass, 'generation has all of its passes');
        return pass;
      },
      keptBytes: (mode) => (mode === 'keep' ? sum(bytes) : 0),
    };
    const workload: Workload<GenerationPasses> = {
      ...{ parameters, training: false, programs: own.programs, readback: NO_READBACK, activations },
      passes: (map) => generationPasses(own, map),
      lasting: sum(bytes.filter((_, i) => modes[i] === 'keep')),
    };
    known.set(modes.join(), workload);
    return workload;
  };
  return placed(caches.map(() => menu[0] ?? 'keep'));
}
