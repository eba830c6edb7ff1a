// The shades of chunks and activations: one table for the page's cells and the report's map, its states apart from each other.

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { Paint } from '../../demo/memory/paint.ts';
import { activationCode, CODES, decode, encodeState, TIERS } from '../../src/engine/observe/chunk-codes.ts';
import { STATES } from '../../src/memory/layout/states.ts';
import { Fills } from '../../src/report/page/fills.ts';
import { type Colors, channels } from '../../src/report/paint/colors.ts';

const colorsOf = (scheme: string, paper: string, ink: string) =>
  ({
    ...{ paper, ink, muted: '#6a7178' },
    ...Object.fromEntries([...scheme.matchAll(/--(\w+): (#\w{6});/g)].map(([, name, color]) => [name, color])),
  }) as Colors;
const COLORS = path.resolve(import.meta.dirname, '../../src/report/memory-colors.css');
const [light = '', dark = ''] = readFileSync(COLORS, 'utf8').split('@media');
const schemes = [
  ['light', colorsOf(light, '#fdfdfb', '#1c2024')],
  ['dark', colorsOf(dark, '#15181a', '#e4e5e2')],
] as const;

const context = () => ({ fillStyle: '', fillRect() {} }) as unknown as CanvasRenderingContext2D;
const ofReport = (colors: Colors, code: number) => new Fills(colors, false).of(context(), code);
/** Of a cell without an outline. */
function ofPage(colors: Colors, code: number) {
  const given = context();
  new Paint(colors).chunk(given, code, '', 0, 0, 5);
  return given.fillStyle;
}

test.each(schemes)('a cell of the page has the fill of the report’s map, %s', (_, colors) => {
  const codes = Array.from({ length: CODES }, (_, code) => code).filter((code) => decode(code).tier !== 'none');
  expect(codes.length).toBeGreaterThan(30);
  for (const code of codes) expect(ofPage(colors, code), JSON.stringify(decode(code))).toBe(ofReport(colors, code));
  expect(ofPage(colors, activationCode('kept', false))).toBe(colors.activations);
});

test.each(schemes)('states in one tier are apart from each other and from the paper, %s', (_, colors) => {
  for (const tier of TIERS.filter((tier) => tier !== 'none')) {
    const fills = STATES.map((state) => ofReport(colors, encodeState(tier, state)) as string);
    const apart = (a: string, b: string) =>
      Math.max(...channels(a).map((value, i) => Math.abs(value - (channels(b)[i] ?? 0))));
    // A step of colour that is seen beside another: 12 of 255.
    const near = [...fills, colors.paper].flatMap((a, i, all) => all.slice(i + 1).filter((b) => apart(a, b) < 12));
    expect(near, tier).toEqual([]);
  }
});
