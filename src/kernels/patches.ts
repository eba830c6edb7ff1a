// Images as rows of patches: what a vision transformer embeds. Nothing flows back, for pixels require no gradient.

import shader from '../../shaders/patches/patches.wgsl?raw';
import { type Arrays, type Kernel, read, write } from './kernel.ts';
import { perItem } from './variants.ts';

export interface PatchesProblem {
  batch: number;
  channels: number;
  /** Of an image: multiples of the patch's. */
  height: number;
  width: number;
  patchHeight: number;
  patchWidth: number;
}

const sizeOf = ({ batch, channels, height, width }: PatchesProblem) => batch * channels * height * width;

/** pixels (batch, channels, height, width) -> y (batch, patches, channels * patchHeight * patchWidth). */
export const patches: Kernel<PatchesProblem> = {
  name: 'patches',
  operands: (p) => ({ pixels: read(sizeOf(p)), y: write(sizeOf(p)) }),
  affectsSpeed: {
    ...{ batch: true, channels: true, height: true, width: true },
    ...{ patchHeight: true, patchWidth: true },
  },
  variants: perItem(shader, sizeOf, (p) => ({
    ...{ size: sizeOf(p), channels: p.channels, height: p.height, width: p.width },
    ...{ patch_height: p.patchHeight, patch_width: p.patchWidth },
  })),
  flops: () => 0,
  reference({ batch, channels, height, width, patchHeight, patchWidth }, { pixels, y }: Arrays<'pixels' | 'y'>) {
    const across = width / patchWidth;
    const patchSize = channels * patchHeight * patchWidth;
    for (let i = 0; i < batch * channels * height * width; i++) {
      const [column, row] = [i % width, Math.floor(i / width) % height];
      const [channel, image] = [
        Math.floor(i / (width * height)) % channels,
        Math.floor(i / (width * height * channels)),
      ];
      const patch = Math.floor(row / patchHeight) * across + Math.floor(column / patchWidth);
      const within = (channel * patchHeight + (row % patchHeight)) * patchWidth + (column % patchWidth);
      y[(image * across * (height / patchHeight) + patch) * patchSize + within] = pixels[i]!;
    }
  },
};
