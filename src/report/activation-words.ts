// Words for the bytes of activations: how many they take as they are placed, beside those that are alive at once, which no
// placement could undercut. For `plan`, the summary of a run and its report.

import type { NonModelMemory } from '../engine/compile/candidate.ts';
import { formatBytes } from '../util/bytes.ts';

/** `liveness bound 158 MB`. */
export const aliveWords = ({ alive }: Pick<NonModelMemory, 'alive'>): string => `liveness bound ${formatBytes(alive)}`;
