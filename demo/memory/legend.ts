// The legend: every colour and outline with what it means. Swatches are painted by what paints the cells.

import { TIERS, type Tier } from '../../src/engine/observe/chunk-codes.ts';
import { STATES, type State } from '../../src/memory/layout/states.ts';
import { open } from './cells.ts';
import { element } from './dom.ts';
import { type Colors, Paint } from './paint.ts';

const SIZE = 12;
/** No code: what Paint.copy paints. */
const COPY = -1;
const DROPPED = -2;
const codeOf = (tier: Tier, state: State): number => TIERS.indexOf(tier) * STATES.length + STATES.indexOf(state);

const ENTRIES: readonly (readonly [title: string, entries: readonly (readonly [number, string])[]])[] = [
  [
    'Where',
    [
      [codeOf('gpu', 'HOLD'), 'on the GPU'],
      [codeOf('staging', 'HOLD'), 'on its way down'],
      [COPY, 'a copy on its way'],
      [codeOf('host', 'HOLD'), 'in host memory'],
      [codeOf('disk', 'HOLD'), 'on disk'],
      [codeOf('none', 'FREE'), 'nowhere: free, or all zeros'],
    ],
  ],
  [
    'Doing',
    [
      [codeOf('gpu', 'COMPUTE'), 'in use by the operator'],
      [codeOf('gpu', 'HOLD'), 'held'],
      [codeOf('gpu', 'HOLD_AFTER_FWD'), 'forward has used it, backward will'],
      [codeOf('gpu', 'HOLD_AFTER_BWD'), 'backward has used it, the update will'],
    ],
  ],
  [
    'Moving',
    [
      [codeOf('host', 'HOLD'), 'filled: its bytes are copied'],
      [DROPPED, 'hollow: dropped, its copy lies below'],
    ],
  ],
];

export class Legend {
  readonly element = element('div', 'legend');
  readonly #swatches: [canvas: HTMLCanvasElement, code: number][] = [];

  constructor() {
    for (const [title, entries] of ENTRIES) {
      const items = entries.map(([code, name]) => {
        const canvas = element('canvas');
        canvas.ariaHidden = 'true';
        this.#swatches.push([canvas, code]);
        return element('span', '', canvas, name);
      });
      this.element.append(element('b', '', title), element('p', '', ...items));
    }
  }

  draw(colors: Colors): void {
    const paint = new Paint(colors);
    for (const [canvas, code] of this.#swatches) {
      const context = open(canvas, SIZE + 6, SIZE + 6);
      if (code === COPY) paint.hollow(context, 'staging', 3, 3, SIZE);
      else if (code === DROPPED) paint.hollow(context, 'host', 3, 3, SIZE);
      else paint.chunk(context, code, '', 3, 3, SIZE);
      if (code === codeOf('gpu', 'COMPUTE')) paint.ring(context, colors['ink'] ?? '', [3, 3, SIZE], 1.8, 1.6);
    }
  }
}
