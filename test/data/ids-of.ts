// All ids of a run of tokens.

import type { TokenRun } from '../../src/data/token-run.ts';
import { at } from '../../src/util/at.ts';

export const idsOf = async (run: TokenRun): Promise<number[]> => Array.from(at(await run.read([[0, run.length]]), 0));
