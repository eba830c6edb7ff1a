// The classes that something is taken for, as bars: the likeliest few, longest first.

import type { ClassGuess } from '../src/browser/index.ts';
import { make } from './page.ts';

const SHOWN = 5;

export function showGuesses(list: HTMLElement, guesses: readonly ClassGuess[]): void {
  list.replaceChildren(
    ...guesses.slice(0, SHOWN).map(({ name, probability }) => {
      const bar = make('span', { className: 'bar' });
      bar.style.transform = `scaleX(${probability})`;
      const share = make('output', {}, `${(100 * probability).toFixed(1)} %`);
      return make('li', {}, make('code', { title: name }, name), make('span', { className: 'track' }, bar), share);
    }),
  );
}
