// The tiles that attention's kernels compute in: how a dispatch over (tile of rows, head) pairs is made from the parts of a
// shader, and the variants for CPUs and for GPUs that forward and backward have alike. Every variant serves every head size; four
// floats a load where all is aligned.

import panels from '../../shaders/attention/panels.wgsl?raw';
import spanLane from '../../shaders/attention/span_lane.wgsl?raw';
import spanQuad from '../../shaders/attention/span_quad.wgsl?raw';
import spanTile from '../../shaders/attention/span_tile.wgsl?raw';
import { type Masked, maskShader } from './attention-mask.ts';
import { ceilDiv, type Dispatch, hasQuads, linearGrid, type Variant } from './kernel.ts';

/** What scores are multiplied by. */
export interface Scaled {
  /** @default 1 / sqrt(headSize) */
  scale?: number;
}

export const scaleOf = ({ scale, headSize }: Scaled & { headSize: number }): number => scale ?? 1 / Math.sqrt(headSize);

interface Tileable extends Masked {
  batch: number;
  seq: number;
  headSize: number;
}

/** The parts of a kernel that its variants share. */
export interface Texts {
  load1: string;
  load4: string;
  span: string;
  tiled: string;
}

/** Lanes of a workgroup of the span kernels: two quads, or as many lanes as a CPU has at most. */
const LANES = 8;
/** Rows of a workgroup's tile in the tiled kernels. */
const TILE = 32;

/** What a shader is given. `strides` and offsets count elements here, and in the shader what it loads at once. */
export interface Given {
  counts: Record<string, number>;
  strides: Record<string, number>;
}

/** A dispatch over (tile of rows, head) pairs, of which there are `pairs` for each tile. */
export function tileDispatch<P extends Tileable>(
  problem: P,
  texts: Pick<Texts, 'load1' | 'load4'>,
  main: string,
  { counts, strides }: Given,
  pairs: number,
  constants: Dispatch['constants'],
  workgroups: [number, number, number],
): Dispatch {
  const { headSize } = problem;
  const mask = maskShader(problem);
  const unit = [headSize, ...Object.values(strides)].every((count) => count % 4 === 0) ? 4 : 1;
  const inUnits = Object.entries(strides).map(([name, count]) => [name, count / unit]);
  return {
    shader: (unit === 4 ? texts.load4 : texts.load1) + main + mask.shader,
    constants: { ...constants, ...mask.constants, DIMS: ceilDiv(headSize, 4), HEAD: headSize / unit },
    params: { ...counts, ...Object.fromEntries(inUnits), pairs, dims: ceilDiv(headSize, 4) },
    workgroups,
  };
}

/**
 * `quads` and `lanes`: register tiles, no workgroup memory, for software adapters; those with quads try both. `tiled`: for
 * GPUs; a workgroup of it has `dimsOfTile` of a head's dims. `heads` is the number of heads whose tiles are apart: all of them, or the kv heads.
 */
export function tileVariants<P extends Tileable>(
  texts: Texts,
  heads: (problem: P) => number,
  given: (problem: P) => Given,
  dimsOfTile = Number.POSITIVE_INFINITY,
): Variant<P>[] {
  const span = (name: string, text: string, lanes: number): Pick<Variant<P>, 'name' | 'dispatch'> => ({
    name,
    dispatch(p) {
      const pairs = p.batch * heads(p);
      const grid = linearGrid(ceilDiv(p.seq, 4 * lanes) * ceilDiv(pairs, LANES / lanes));
      return tileDispatch(p, texts, texts.span + spanTile + text, given(p), pairs, { LANES }, grid);
    },
  });
  return [
    { ...span('quads', spanQuad, 4), supports: (_, traits) => hasQuads(traits), compilesSlowly: true },
    {
      // 64 invocations and at most 13,472 bytes of workgroup memory: within the limits that WebGPU guarantees.
      name: 'tiled',
      supports: (_, { software }) => !software,
      dispatch(p) {
        const pairs = p.batch * heads(p);
        const slices = Math.max(1, ceilDiv(p.headSize, dimsOfTile));
        const grid = linearGrid(ceilDiv(p.seq, TILE) * pairs * slices);
        return tileDispatch(p, texts, texts.tiled + panels, given(p), pairs, {}, grid);
      },
    },
    // A GPU's compiler keeps hundreds of its registers in memory.
    { ...span('lanes', spanLane, 1), supports: (_, { software }) => software },
  ];
}
