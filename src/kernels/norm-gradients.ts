// Gradients of LayerNorm and RMSNorm: one dispatch makes that of the input, whose rows are independent, and those of the parameters,
// which are sums over rows. Rows are added up in blocks of ROW_BLOCK, and the blocks one by one in their order, from what is there
// on, whatever the grid: so that rows may come in parts and no bit changes.

import columnPerInvocation from '../../shaders/shared/columns_per_invocation.wgsl?raw';
import columnsPerWorkgroup from '../../shaders/shared/columns_per_workgroup.wgsl?raw';
import elem1 from '../../shaders/shared/elem_1.wgsl?raw';
import elem4 from '../../shaders/shared/elem_4.wgsl?raw';
import rowPerInvocation from '../../shaders/shared/row_per_invocation.wgsl?raw';
import rowsPerWorkgroup from '../../shaders/shared/rows_per_workgroup.wgsl?raw';
import {
  ceilDiv,
  type Dispatch,
  linearGrid,
  type Operand,
  type RowCut,
  update,
  type Variant,
  write,
} from './kernel.ts';
import { type Lanes, lanesOf } from './variants.ts';

/** Rows of a block. */
export const ROW_BLOCK = 32;

export interface NormGradientsProblem {
  rows: number;
  width: number;
  /** Whether dx is added to. */
  accumulate: boolean;
  /** Whether dweight is added to. */
  accumulateWeight: boolean;
  /** The sum of each block of rows is kept by itself: (blocks, width), not (width). @default false */
  byBlock?: boolean;
}

/** Invocations of a workgroup on software adapters: columns are few, and are to be on all of its threads. */
const SMALL_WORKGROUP = 16;
/** And on GPUs: 32 blocks of rows at a time, of as many elem as are a line of memory, or four rows. */
const LARGE_WORKGROUP = 256;
const COLUMNS = 8;
const ROW_LANES = 64;

/** The variants of a shader; `params`: of the problem, beside its sizes. */
export function normGradientsVariants<P extends NormGradientsProblem>(
  shader: string,
  params: (problem: P) => Dispatch['params'],
): Variant<P>[] {
  const variant = (
    fragments: string,
    constants: Readonly<Record<string, number>> & { readonly WORKGROUP: number },
    { columns, rows }: { readonly columns: number; readonly rows: number },
  ): Variant<P>['dispatch'] => {
    return (problem) => {
      const lanes: Lanes = lanesOf(problem.width);
      const width = problem.width / lanes;
      const groups = ceilDiv(width, columns);
      const own = { rows: problem.rows, width, column_groups: groups, by_block: Number(problem.byBlock ?? false) };
      return {
        shader: shader + fragments + (lanes === 4 ? elem4 : elem1),
        constants: { ...constants, ROW_BLOCK },
        params: { ...own, ...params(problem) },
        workgroups: linearGrid(groups + ceilDiv(problem.rows, rows)),
      };
    };
  };
  return [
    {
      name: 'rows',
      supports: (_, { software }) => software,
      dispatch: variant(
        rowPerInvocation + columnPerInvocation,
        { WORKGROUP: SMALL_WORKGROUP },
        { columns: SMALL_WORKGROUP, rows: SMALL_WORKGROUP },
      ),
    },
    {
      name: 'workgroup',
      supports: (_, { software }) => !software,
      dispatch: variant(
        rowsPerWorkgroup + columnsPerWorkgroup,
        { WORKGROUP: LARGE_WORKGROUP, COLUMNS },
        { columns: COLUMNS, rows: LARGE_WORKGROUP / ROW_LANES },
      ),
    },
  ];
}

/** What sums over rows are written to. */
export function sumsOperand({ rows, width, byBlock }: NormGradientsProblem, accumulate: boolean): Operand {
  return (accumulate ? update : write)(byBlock ? ceilDiv(rows, ROW_BLOCK) * width : width);
}

/** Elements that a binding may begin at a multiple of. */
const BINDING_UNIT = 64;

/** Rows from which on so many blocks of sums, of so many elements each, begin where a binding may. */
export function unitOfPartials(elements: number, heads = 1): number {
  let unit = 1;
  while ((unit * heads) % ROW_BLOCK !== 0 || (((unit * heads) / ROW_BLOCK) * elements) % BINDING_UNIT !== 0) unit *= 2;
  return unit;
}

/** How a problem is cut by rows. `narrow`: operands with a float a row; `sums`: with sums over rows. */
export const rowsOfGradients =
  (narrow: readonly string[], sums: readonly string[]) =>
  <P extends NormGradientsProblem & { accumulateBias?: boolean }>(problem: P, rows: number): RowCut<P> | undefined => {
    const { width, byBlock } = problem;
    if (problem.rows !== rows) return undefined;
    const stridesOf = (names: readonly string[], stride: number) =>
      Object.fromEntries(names.map((name) => [name, stride]));
    const strides = { ...stridesOf(['dy', 'x', 'dx'], width), ...stridesOf(narrow, 1) };
    if (byBlock) {
      return {
        unit: unitOfPartials(width),
        strides: { ...strides, ...stridesOf(sums, width / ROW_BLOCK) },
        part: (_, count) => ({ ...problem, rows: count }),
      };
    }
    // The sums go on from part to part.
    const goesOn = { accumulateWeight: true, ...('accumulateBias' in problem && { accumulateBias: true }) };
    return {
      unit: ROW_BLOCK,
      strides,
      part: (first, count) => ({ ...problem, rows: count, ...(first > 0 && goesOn) }),
    };
  };

/** Adds term(row, column) up over rows in that order, into `sums` as they are kept. */
export function addUp(
  { rows, width, byBlock }: NormGradientsProblem,
  sums: Float64Array,
  accumulate: boolean,
  term: (row: number, column: number) => number,
): void {
  if (!accumulate) sums.fill(0);
  for (let first = 0; first < rows; first += ROW_BLOCK) {
    const at = byBlock ? (first / ROW_BLOCK) * width : 0;
    for (let c = 0; c < width; c++) {
      let ofBlock = 0;
      for (let r = first; r < Math.min(first + ROW_BLOCK, rows); r++) ofBlock += term(r, c);
      sums[at + c]! += ofBlock;
    }
  }
}
