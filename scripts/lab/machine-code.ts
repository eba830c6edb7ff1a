// Machine code that a GPU's compiler made of a kernel: its statistics, and what its main loop does. Reads what
// null_gpu.c writes, with AMD's instructions as LLVM's and ACO's disassemblers print them. Pure text in, figures out.

/** A kernel as it was compiled. */
export interface Compiled {
  /** Lanes of a wave. */
  readonly wave: number;
  readonly registers: number;
  /** Registers kept in memory. */
  readonly spills: number;
  /** Bytes of a lane that lie in memory: spills, and arrays that a variable indexes. */
  readonly scratch: number;
  /** Bytes of a workgroup. */
  readonly workgroupMemory: number;
  /** That a SIMD unit holds at once. */
  readonly waves: number;
  readonly instructions: number;
  /** The loop without one in it that has the most multiply-adds, those of matrices with them; none where no loop has any. */
  readonly loop: Loop | undefined;
}

/** Instructions of a loop, by what they do. */
export interface Loop {
  readonly instructions: number;
  /** Of floats. Instructions; two in one (`v_dual_`) count as two here and there. */
  readonly multiplyAdds: number;
  /** Products of matrices, of 16 x 16 x 16 multiply-adds each. */
  readonly matrixProducts: number;
  /** From workgroup memory: all, and those of 128 bits. */
  readonly workgroupReads: Reads;
  readonly globalReads: Reads;
  readonly barriers: number;
}

interface Reads {
  readonly all: number;
  readonly wide: number;
}

/** Errors: Error naming a statistic that is not there. */
export function parseCompiled(text: string): Compiled {
  const statistic = (name: string): number => {
    const value = new RegExp(`^statistic ${name} = (.*)$`, 'm').exec(text)?.[1];
    if (value === undefined) throw new Error(`the compiler tells no "${name}"; the lab reads Mesa's RADV`);
    return Number(value);
  };
  return {
    wave: Number(/^wave (\d+)$/m.exec(text)?.[1]),
    registers: statistic('VGPRs'),
    spills: statistic('Spilled VGPRs') + statistic('Spilled SGPRs'),
    scratch: statistic('Scratch size'),
    workgroupMemory: statistic('LDS size'),
    waves: statistic('Subgroups per SIMD'),
    instructions: statistic('Instructions'),
    loop: mainLoop(/^code\n([\s\S]*?)^end$/m.exec(text)?.[1] ?? ''),
  };
}

/** Instructions between a label and the next one. */
interface Block {
  readonly label: string;
  readonly instructions: string[];
}

function blocksOf(code: string): Block[] {
  const blocks: Block[] = [];
  for (const line of code.split('\n')) {
    const label = /^(BB\d+):/.exec(line)?.[1];
    if (label !== undefined) blocks.push({ label, instructions: [] });
    const instruction = /^\s+([a-z]\w*.*?)\s*(;.*)?$/.exec(line)?.[1];
    if (instruction !== undefined) blocks.at(-1)?.instructions.push(instruction);
  }
  return blocks;
}

/** A loop is what lies between a label and a branch back to it. */
export function mainLoop(code: string): Loop | undefined {
  const blocks = blocksOf(code);
  const placeOf = new Map(blocks.map(({ label }, place) => [label, place]));
  const loops: { readonly first: number; readonly last: number; readonly loop: Loop }[] = [];
  blocks.forEach(({ instructions }, last) => {
    instructions.forEach((instruction, end) => {
      const first = placeOf.get(/^s_c?branch\w*\s+(BB\d+)/.exec(instruction)?.[1] ?? '');
      if (first === undefined || first > last) return;
      const before = blocks.slice(first, last).flatMap((block) => block.instructions);
      loops.push({ first, last, loop: loopOf([...before, ...instructions.slice(0, end + 1)]) });
    });
  });
  const innermost = loops.filter(
    (outer) => !loops.some((inner) => inner !== outer && inner.first >= outer.first && inner.last <= outer.last),
  );
  const [main] = innermost
    .map(({ loop }) => loop)
    .filter((loop) => termsOf(loop) > 0)
    .sort((one, other) => termsOf(other) - termsOf(one) || one.instructions - other.instructions);
  return main;
}

/** The part of a loop's instructions that is multiply-adds. */
export const shareOf = ({ instructions, multiplyAdds }: Loop): number => multiplyAdds / instructions;

/** Of a lane, in a product of 16 x 16 x 16 by 32 of them. */
const MULTIPLY_ADDS_OF_PRODUCT = 128;

/** A lane's multiply-adds, those of matrices with them. */
const termsOf = ({ multiplyAdds, matrixProducts }: Loop): number =>
  multiplyAdds + MULTIPLY_ADDS_OF_PRODUCT * matrixProducts;

function loopOf(instructions: readonly string[]): Loop {
  const count = (pattern: RegExp) => instructions.filter((instruction) => pattern.test(instruction)).length;
  // One instruction that does two things: `v_dual_fmac_f32 v0, v1, v2 :: v_dual_fmac_f32 v3, v4, v5`.
  const parts = instructions.flatMap((instruction) => instruction.split('::'));
  return {
    instructions: parts.filter((part) => !/^s_delay_alu/.test(part.trim())).length,
    multiplyAdds: parts.filter((part) => /^v_(pk_|dual_)?(fma|fmac|mad|mac)(ak|mk)?_(mix_)?f/.test(part.trim())).length,
    matrixProducts: count(/^v_(wmma|mfma|swmmac)_/),
    workgroupReads: { all: count(/^ds_(load|read)/), wide: count(/^ds_(load|read)_b128/) },
    globalReads: {
      all: count(/^(buffer|global)_load/),
      wide: count(/^(buffer|global)_load_(b128|dwordx4|format_xyzw)/),
    },
    barriers: count(/^s_barrier/),
  };
}
