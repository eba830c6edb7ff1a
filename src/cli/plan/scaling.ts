// `holdfast plan --scaling`: a line for each number of ranks, with what a step takes there and what it waits for.

import type { Waited } from '../../engine/simulate/step.ts';
import type { Scaling, ScalingRow } from '../../train/plan/scaling.ts';
import { count, duration, percent } from './words.ts';

export function scalingLines(rows: readonly ScalingRow[], how: Scaling): string[] {
  const columns = [
    'a step',
    'tokens/s',
    'efficiency',
    'arithmetic',
    'network',
    'stages',
    'link',
    'disk',
    'of the peak',
  ];
  return [
    `${'ranks'.padStart(6)}${'a rank takes'.padStart(16)}${columns.map((name) => name.padStart(WIDTH)).join('')}`,
    ...rows.map(({ ranks, batch, accumulate, found, refused, efficiency }) => {
      const head = `${String(ranks).padStart(6)}${`${accumulate} x ${batch}`.padStart(16)}`;
      if (!found) return `${head}  does not fit: ${refused ?? ''}`;
      const { seconds, waits, computeSeconds, tokensPerSecond, shareOfPeak } = found;
      const share = (...causes: Waited[]) => percent(causes.reduce((sum, cause) => sum + waits[cause], 0) / seconds);
      const cells = [
        duration(seconds),
        count(tokensPerSecond),
        percent(efficiency ?? 1),
        percent(computeSeconds / seconds),
        share('network'),
        share('bubble'),
        share('up', 'down'),
        share('diskRead', 'diskWrite'),
        percent(shareOfPeak),
      ];
      return head + cells.map((text) => text.padStart(WIDTH)).join('');
    }),
    `${how} scaling: ${how === 'weak' ? 'each rank takes as many micro-batches' : 'all ranks together take as many sequences'} in each line; efficiency: tokens/s and rank beside the first that fits; arithmetic and what is waited for as parts of a step`,
  ];
}

const WIDTH = 12;
