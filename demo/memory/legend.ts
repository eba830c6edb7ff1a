// The legend: every colour and outline with what it means. Swatches are painted by what paints the cells.

import { activationCode, type drawing, encodeState } from '../../src/browser/index.ts';
import { make } from '../page.ts';
import { open } from './cells.ts';
import { Paint } from './paint.ts';

const SIZE = 12;
/** No codes: hollow cells, which `Paint.hollow` paints. */
const COPY = -1;
const DROPPED = -2;

const ENTRIES: readonly (readonly [title: string, entries: readonly (readonly [number, string])[]])[] = [
  [
    'Where',
    [
      [encodeState('gpu', 'HOLD'), 'on the GPU'],
      [encodeState('staging', 'HOLD'), 'on its way down'],
      [COPY, 'a copy on its way'],
      [encodeState('host', 'HOLD'), 'in host memory'],
      [encodeState('disk', 'HOLD'), 'on disk'],
      [encodeState('none', 'FREE'), 'nowhere: free, or all zeros'],
    ],
  ],
  [
    'Doing',
    [
      [encodeState('gpu', 'COMPUTE'), 'in use by the operator'],
      [encodeState('gpu', 'HOLD'), 'held'],
      [encodeState('gpu', 'HOLD_AFTER_FWD'), 'forward has used it, backward will'],
      [encodeState('gpu', 'HOLD_AFTER_BWD'), 'backward has used it, the update will'],
    ],
  ],
  [
    'Activations',
    [
      [activationCode('kept', false), 'kept for the backward pass, or back'],
      [activationCode('host', false), 'moved below'],
      [activationCode('given up', false), 'given up, to be made again'],
      [activationCode('again', false), 'made again'],
    ],
  ],
  [
    'Moving',
    [
      [encodeState('host', 'HOLD'), 'filled: its bytes are copied'],
      [DROPPED, 'hollow: dropped, its copy lies below'],
    ],
  ],
];

export class Legend {
  readonly element = make('div', { className: 'legend' });
  readonly #swatches: [canvas: HTMLCanvasElement, code: number][] = [];

  constructor() {
    for (const [title, entries] of ENTRIES) {
      const items = entries.map(([code, name]) => {
        const canvas = make('canvas');
        canvas.ariaHidden = 'true';
        this.#swatches.push([canvas, code]);
        return make('span', {}, canvas, name);
      });
      this.element.append(make('b', {}, title), make('p', {}, ...items));
    }
  }

  draw(colors: drawing.Colors): void {
    const paint = new Paint(colors);
    for (const [canvas, code] of this.#swatches) {
      const context = open(canvas, SIZE + 6, SIZE + 6);
      if (code === COPY) paint.hollow(context, 'staging', 3, 3, SIZE);
      else if (code === DROPPED) paint.hollow(context, 'host', 3, 3, SIZE);
      else paint.chunk(context, code, '', 3, 3, SIZE);
      if (code === encodeState('gpu', 'COMPUTE')) paint.ring(context, colors.ink, [3, 3, SIZE], 1.8, 1.6);
    }
  }
}
