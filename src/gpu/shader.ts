// A shader's text is the one place that says what it binds and which parameters it takes: this file reads
// them from the WGSL, writes the prelude of constants before it, and packs the uniform block.

import { assert } from '../util/errors.ts';

export interface ShaderBinding {
  readonly name: string;
  readonly access: 'read' | 'read_write';
}

export interface ShaderInterface {
  /** The fields of `struct Params`, in order; empty when the shader has no uniform block. */
  readonly params: readonly { name: string; type: 'u32' | 'i32' | 'f32' }[];
  /** Storage bindings by their binding number; binding 0 is the uniform block and has no entry. */
  readonly bindings: ReadonlyMap<number, ShaderBinding>;
}

const interfaces = new Map<string, ShaderInterface>();

/** What a WGSL text binds in group 0. */
export function reflect(source: string): ShaderInterface {
  const known = interfaces.get(source);
  if (known) return known;
  const text = source.replace(/\/\/.*$/gm, '');
  const bindings = new Map<number, ShaderBinding>();
  const binding = /@group\(0\)\s*@binding\((\d+)\)\s*var<storage,\s*(read|read_write)>\s*(\w+)/g;
  for (const [, index, access, name] of text.matchAll(binding)) {
    assert(!bindings.has(Number(index)), `binding ${index} is declared twice`);
    bindings.set(Number(index), { name: name as string, access: access as ShaderBinding['access'] });
  }
  const block = /struct Params\s*\{([^}]*)\}/.exec(text)?.[1] ?? '';
  const params = [...block.matchAll(/(\w+)\s*:\s*(u32|i32|f32)/g)].map(([, name, type]) => ({
    name: name as string,
    type: type as 'u32' | 'i32' | 'f32',
  }));
  const result = { params, bindings };
  interfaces.set(source, result);
  return result;
}

const STORAGE = /var<storage, (read|read_write)> (\w+): array<(\w+)>/g;
const FLOATS = ['f32', 'vec2f', 'vec4f', 'elem'];

/**
 * The text that is compiled: the constants in front, in WGSL's own words (`enable` directives stay first), and bindings of floats
 * declared as writable, whether the shader writes to them or only reads. All ranges of one buffer that a dispatch binds must be
 * declared alike (WebGPU, Programmable Passes, usage scopes), and what shares a buffer depends on the plan. Were a binding
 * declared as it happens to lie, one shader would have several texts, and those need not have the same bits: on an H100, layer
 * norms whose weight was writable had other last bits than those where it was not. Integers are a step's inputs, in buffers of
 * their own, and stay as they are: barriers may depend on what is only read. So do bindings of one range, `together`: ranges
 * that may be written must not overlap.
 */
export function compiledText(
  source: string,
  constants: Readonly<Record<string, number>>,
  together: readonly string[] = [],
): string {
  const enables = source.match(/^enable .*;$/gm) ?? [];
  const lines = Object.entries(constants).map(([name, value]) => `const ${name} = ${literal(value)};`);
  const rest = source.replace(/^enable .*;$/gm, '').replace(STORAGE, (_, declared, name, type) => {
    const access = together.includes(name) ? 'read' : FLOATS.includes(type) ? 'read_write' : declared;
    return `var<storage, ${access}> ${name}: array<${type}>`;
  });
  return [...enables, ...lines, rest].join('\n');
}

function literal(value: number): string {
  return Number.isInteger(value) ? `${value}u` : `${Math.fround(value)}f`;
}

/** Writes the uniform block (scalars, 4 bytes each) at a byte offset. */
export function packParams(
  shader: ShaderInterface,
  values: Readonly<Record<string, number>>,
  target: ArrayBuffer,
  offset: number,
): void {
  const view = new DataView(target, offset, shader.params.length * 4);
  shader.params.forEach(({ name, type }, i) => {
    const value = values[name];
    assert(value !== undefined, `the shader's parameter ${name} has no value`);
    if (type === 'f32') view.setFloat32(i * 4, value, true);
    else if (type === 'u32') view.setUint32(i * 4, value, true);
    else view.setInt32(i * 4, value, true);
  });
}
