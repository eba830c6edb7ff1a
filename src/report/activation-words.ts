// Words for the bytes of activations: how many they take as they are placed, beside those that are alive at once, which no
// placement could undercut; and how many are moved. For `plan`, the summary of a run, its report and a page.

import type { NonModelMemory } from '../engine/compile/candidate.ts';
import type { ActivationTraffic } from '../engine/compile/pass-figures.ts';
import { formatBytes } from '../util/bytes.ts';

/** `liveness bound 158 MB`. */
export const aliveWords = ({ alive }: Pick<NonModelMemory, 'alive'>): string => `liveness bound ${formatBytes(alive)}`;

/** `2.79 MB of activations each way`; where more come back than go, `393 KB of activations down, 786 KB up`. */
export const movedWords = ({ down, up }: ActivationTraffic, what = ' of activations'): string =>
  down === up ? `${formatBytes(down)}${what} each way` : `${formatBytes(down)}${what} down, ${formatBytes(up)} up`;
