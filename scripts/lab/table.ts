// The lab's figures as text: a row for each variant as it was compiled, then what a step launches with few waves. Rows of one
// variant that differ in nothing that is shown are one.

import type { LabReport } from './compile.ts';
import { shareOf } from './machine-code.ts';

/** A card of today has about so many compute units, ... */
const COMPUTE_UNITS = 80;
/** ... each of which wants so many waves at least, to have others while one waits. */
const WAVES_EACH = 4;
export const FEW_WAVES = COMPUTE_UNITS * WAVES_EACH;
/**
 * What moves fewer bytes than one read of 128 bits for each of 64 lanes of so many waves has nothing for them to do: the last step of
 * a sum, the decision of a step.
 */
export const LEAST_BYTES = FEW_WAVES * 64 * 16;

/** Whether a card has too little to do for its size, with enough there to do. */
export const isThin = ({ waves, bytes }: Pick<LabReport['launches'][number], 'waves' | 'bytes'>): boolean =>
  bytes >= LEAST_BYTES && Math.max(...Object.values(waves)) < FEW_WAVES;

export function tables(card: string, { adapter, variants, launches }: LabReport): string {
  const rows = variants.map(
    ({ kernel, variant, stored, registers, spills, scratch, workgroupMemory, waves, instructions, loop }) => [
      [`${kernel}.${variant}`, ...Object.entries(stored).map(([name, element]) => `${name} ${element}`)].join(', '),
      ...[registers, spills, scratch, workgroupMemory, waves, instructions].map(String),
      ...(loop
        ? [
            `${loop.instructions}`,
            `${(shareOf(loop) * 100).toFixed(0)} %`,
            `${loop.matrixProducts}`,
            `${loop.workgroupReads.wide}/${loop.workgroupReads.all}`,
            `${loop.globalReads.wide}/${loop.globalReads.all}`,
          ]
        : ['', '', '', '', '']),
    ],
  );
  const header = ['kernel', 'registers', 'spills', 'scratch', 'workgroup memory', 'waves', 'instructions', 'main loop'];
  header.push('multiply-adds', 'matrix products', '128-bit workgroup reads', '128-bit global reads');
  const shaders = new Map<string, { row: string[]; count: number }>();
  for (const row of rows) shaders.set(row.join(), { row, count: (shaders.get(row.join())?.count ?? 0) + 1 });
  const merged = [...shaders.values()].map(({ row, count }) => [...row, `${count}`]);
  const few = launches.filter(isThin);
  const launchRows = few.map(({ step, kernel, label, dispatches, waves, bytes }) => [
    kernel,
    ...[
      Object.entries(waves)
        .map(([variant, count]) => `${variant} ${count}`)
        .join(', '),
      `${dispatches}`,
    ],
    ...[(bytes / 1e6).toFixed(2), `${step}: ${label}`],
  ]);
  return [
    `\n${card}, ${adapter}\n`,
    table([...header, 'shaders'], merged),
    `\ndispatches with fewer waves than ${WAVES_EACH} a compute unit of ${COMPUTE_UNITS} (${FEW_WAVES}), in every variant, that move ${(LEAST_BYTES / 1e6).toFixed(2)} MB or more, of ${sum(launches)}\n`,
    table(['kernel', 'waves', 'dispatches', 'MB moved', 'first of them'], launchRows),
  ].join('');
}

const sum = (launches: LabReport['launches']): number => launches.reduce((all, { dispatches }) => all + dispatches, 0);

/** Lines of columns two spaces apart, all but the first and texts at the end flush right. */
function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [header, ...rows];
  const widths = header.map((_, i) => Math.max(...all.map((row) => row[i]?.length ?? 0)));
  const isText = header.map((name) => name === 'kernel' || name === 'first of them');
  const line = (row: readonly string[]) =>
    row.map((cell, i) => (isText[i] ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join('  ');
  return all.map((row) => `  ${line(row).trimEnd()}\n`).join('');
}
