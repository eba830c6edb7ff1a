// `npm run lab`: what it reads out of machine code, and, where Mesa is, what a GPU's compiler makes of the kernels of whole
// training steps. Figures of the compiler alone: no time, no result of a kernel.

import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { LabReport } from '../../scripts/lab/compile.ts';
import { mainLoop, parseCompiled, shareOf } from '../../scripts/lab/machine-code.ts';
import { prepare } from '../../scripts/lab/mesa.mjs';
import { isThin } from '../../scripts/lab/table.ts';
import { EVERY_CASE } from '../host.ts';

/** Whether a product's sizes are multiples of 4, as those of most are. */
const isInFours = (problem: object): boolean =>
  ['M', 'N', 'K'].every((name) => Number(Reflect.get(problem, name)) % 4 === 0);

const CODE = `BB0:
	s_mov_b32 s0, s3                                            ; be800003
	v_fma_f32 v1, v2, v3, v4                                    ; d54b0001 040a0702
BB1:
	ds_read_b128 v[4:7], v0                                     ; d9fc0000 04000000
	ds_load_b32 v8, v0 offset:4                                 ; d8d80004 08000000
	s_waitcnt lgkmcnt(0)                                        ; bf8cc07f
	v_dual_fmac_f32 v9, v4, v8 :: v_dual_fmac_f32 v10, v5, v8   ; c8000104 090a0905
	v_fmac_f32_e32 v11, v6, v8                                  ; 56161106
BB2:
	s_add_i32 s1, s1, 1                                         ; 81018101
	s_cbranch_scc1 BB1                                          ; bf85fff6
	buffer_load_dwordx4 v[4:7], v0, s[4:7], 0 offen             ; e0381000 80010400
	s_cbranch_scc0 BB0                                          ; bf84fff0
BB3:
	s_endpgm                                                    ; bf810000
`;

describe('machine code', () => {
  it('has its main loop found, of which two instructions in one count twice', () => {
    const loop = mainLoop(CODE);
    expect(loop).toEqual({
      instructions: 8,
      multiplyAdds: 3,
      matrixProducts: 0,
      workgroupReads: { all: 2, wide: 1 },
      globalReads: { all: 0, wide: 0 },
      barriers: 0,
    });
    expect(loop && shareOf(loop)).toBe(3 / 8);
  });

  it('counts products of matrices by themselves', () => {
    const product = 'v_wmma_f32_16x16x16_f16 v[8:15], v[88:95], v[72:79], v[8:15]';
    const loop = mainLoop(CODE.replace(/v_fmac_f32_e32.*/, product));
    expect(loop).toMatchObject({ instructions: 8, multiplyAdds: 2, matrixProducts: 1 });
    expect(mainLoop(`BB0:\n\t${product}\n\ts_branch BB0\n`)?.matrixProducts).toBe(1);
  });

  it('is judged by the innermost loop with the most multiply-adds, of floats alone', () => {
    const [fma, integers] = ['\tv_fmac_f32_e32 v1, v2, v3\n', '\tv_mad_u32_u24 v1, v2, v3, v4\n'];
    const loop = (label: string, body: string) => `${label}:\n${body}\ts_cbranch_scc1 ${label}\n`;
    const tail = loop('BB1', fma.repeat(4));
    const main = loop('BB2', `${fma.repeat(16)}${integers.repeat(6)}`);
    expect(mainLoop(tail + main)).toMatchObject({ instructions: 23, multiplyAdds: 16 });
    expect(mainLoop(main + tail)).toMatchObject({ instructions: 23, multiplyAdds: 16 });
    expect(mainLoop(loop('BB0', tail + fma.repeat(30)))).toMatchObject({ instructions: 5, multiplyAdds: 4 });
  });

  it('may have no loop of multiply-adds', () => {
    expect(mainLoop(CODE.replace(/v_.*/g, 'v_add_f32 v1, v1, v1'))).toBeUndefined();
    expect(mainLoop('')).toBeUndefined();
  });

  it('comes with its statistics, all of which must be there', () => {
    const statistics = ['VGPRs = 120', 'Spilled VGPRs = 3', 'Spilled SGPRs = 1', 'Scratch size = 0', 'LDS size = 8704'];
    statistics.push('Subgroups per SIMD = 8', 'Instructions = 946');
    const text = (lines: string[]) =>
      `wave 64\n${lines.map((line) => `statistic ${line}\n`).join('')}code\n${CODE}\nend\n`;
    const compiled = parseCompiled(text(statistics));
    expect(compiled).toMatchObject({ wave: 64, registers: 120, spills: 4, workgroupMemory: 8704, waves: 8 });
    expect(compiled.loop?.multiplyAdds).toBe(3);
    expect(() => parseCompiled(text(statistics.slice(1)))).toThrow('tells no "VGPRs"');
  });
});

/** What the lab says of a card. */
function compiledFor(card: string, ...options: string[]): LabReport {
  const script = path.join(import.meta.dirname, '..', '..', 'scripts', 'lab', 'lab.mjs');
  const args = [script, '--json', '--card', card, ...options];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', maxBuffer: 2 ** 26 });
  expect(status, stderr).toBe(0);
  return JSON.parse(stdout);
}

const { missing } = prepare() as { missing?: string };
const CARDS = EVERY_CASE ? ['navi21', 'navi31'] : ['navi21'];

describe.skipIf(missing !== undefined)(`kernels in a GPU's compiler${missing ? `, skipped: ${missing}` : ''}`, () => {
  it.each(CARDS)('%s: no variant that a GPU may try keeps registers in memory', (card) => {
    const { variants, launches } = compiledFor(card);
    const names = new Set(variants.map(({ kernel, variant }) => `${kernel}.${variant}`));
    for (const name of [
      'matmul.tiled',
      'matmul.tiled128x64',
      'matmul.tiled64x128',
      'matmul.tiled32x64',
      'attentionBackwardKV.tiled',
      'sumSquares.eights',
      'adamw.items',
    ]) {
      expect(names).toContain(name);
    }
    expect(variants.filter(({ spills, scratch }) => spills > 0 || scratch > 0)).toEqual([]);
    // Their loops compute, with wide reads alone.
    const least = { matmul: 0.85, attention: 0.7, attentionBackwardQ: 0.65, attentionBackwardKV: 0.65 };
    for (const [kernel, share] of Object.entries(least)) {
      const compiled = variants.filter((one) => one.kernel === kernel && one.variant === 'tiled');
      expect(compiled.length).toBeGreaterThan(0);
      for (const { loop, waves } of compiled) {
        expect(loop && shareOf(loop), kernel).toBeGreaterThan(share);
        expect(loop?.workgroupReads.wide).toBe(loop?.workgroupReads.all);
        expect(waves).toBeGreaterThanOrEqual(kernel === 'matmul' ? 8 : 4);
      }
    }
    // Of steps written out the whole of a panel counts, with what brings it. One read float by float takes four times the reads, and
    // the first tiles of a row or column make totals on the way.
    for (const { variant, stored, problem, loop, waves } of variants) {
      const wanted = { tiledUnrolled: 0.85, tiled128x64: 0.84, tiled64x128: 0.84, tiled32x64: 0.73 }[variant];
      if (wanted === undefined) continue;
      expect(waves, variant).toBeGreaterThanOrEqual(8);
      if (!isInFours(problem) || 'totalsOf' in problem || Object.keys(stored).length > 0) continue;
      expect(loop && shareOf(loop), variant).toBeGreaterThanOrEqual(wanted);
      expect(loop?.workgroupReads.wide).toBe(loop?.workgroupReads.all);
    }
    const launched = launches.flatMap(({ kernel, waves }) => Object.keys(waves).map((name) => `${kernel}.${name}`));
    expect(new Set(launched)).toEqual(names);
    // No weight is cut where chunks end, and no part of a product is too small.
    expect(launches.filter((launch) => launch.step.startsWith('GPT-2') && isThin(launch))).toEqual([]);
  });

  // Not before: of RDNA 2's instructions none multiplies matrices.
  it('navi31: weights in f16 go through its matrix units', () => {
    const { variants } = compiledFor('navi31', '--kernel', 'matmul');
    const compiled = variants.filter(({ variant }) => variant.startsWith('subgroupMatrix'));
    expect(compiled.length).toBeGreaterThan(0);
    expect(new Set(compiled.map(({ variant }) => variant))).toEqual(new Set(['subgroupMatrix', 'subgroupMatrixSmall']));
    for (const { variant, wave, spills, scratch, waves, workgroupMemory, stored, loop } of compiled) {
      expect([wave, spills, scratch, stored.b]).toEqual([32, 0, 0, 'f16']);
      expect(waves).toBeGreaterThanOrEqual(8);
      // Of each of four subgroups over two times 16 steps of k: 2 x 2 fragments, or one, of both halves of A.
      const [products, reads, memory] = variant === 'subgroupMatrix' ? [16, 24, 15_360] : [4, 12, 8192];
      expect([loop?.matrixProducts, workgroupMemory]).toEqual([products, memory]);
      expect(loop?.workgroupReads).toEqual({ all: reads, wide: reads });
    }
    // In its multiply-adds a factor may be a half: panels of halves save reads, and leave room for more waves.
    const halves = variants.filter(({ variant, stored }) => variant === 'tiledHalves' && !stored.a);
    expect(halves.length).toBeGreaterThan(0);
    for (const { spills, scratch, waves, loop } of halves) {
      expect([spills, scratch]).toEqual([0, 0]);
      expect(waves).toBeGreaterThan(8);
      expect(loop && shareOf(loop)).toBeGreaterThan(0.9);
      // For four steps of k: of A eight, of B four.
      expect(loop?.workgroupReads).toEqual({ all: 12, wide: 12 });
    }
    const both = variants.filter(({ variant }) => variant === 'tiledAllHalves');
    expect(both.length).toBeGreaterThan(0);
    for (const { spills, scratch, waves, workgroupMemory, loop } of both) {
      expect([spills, scratch, waves, workgroupMemory]).toEqual([0, 0, 14, 4608]);
      expect(loop && shareOf(loop)).toBeGreaterThan(0.9);
      expect(loop?.workgroupReads).toEqual({ all: 8, wide: 8 });
    }
  });
});
