// The colours that a report gives to its parts, by name: a class `paint-NAME` sets `--paint`, since the page's policy
// lets no element bring styles along. The colours themselves are CSS variables of the same names.

const PAINTS = [
  'first',
  'faint',
  'second',
  'gpu',
  'staging',
  'host',
  'disk',
  'activations',
  'other',
  'unused',
] as const;

export type Paint = (typeof PAINTS)[number];

export const PAINT_STYLE = PAINTS.map((name) => `.paint-${name} { --paint: var(--${name}); }`).join('\n');
