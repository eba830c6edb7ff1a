// Functions of a library of the system, called from JavaScript: by Deno's own means, elsewhere through koffi. All return an int.

import { HoldfastError, messageOf } from '../../../util/errors.ts';

/** Of a parameter: an int, an address, or memory, whose bytes stay where they are as long as something uses them. */
export type ForeignType = 'int' | 'address' | 'memory';

type Argument = number | bigint | ArrayBufferView<ArrayBuffer> | null;
export type ForeignFunction = (...given: readonly Argument[]) => number;

/** A library that was loaded. */
export interface ForeignLibrary {
  /** Errors: Error where there is no such function. */
  func(name: string, parameters: readonly ForeignType[]): ForeignFunction;
  /** Where a variable or function lies; undefined where there is none of the name. */
  addressOf(symbol: string): bigint | undefined;
}

/** The first of these libraries that can be loaded; undefined where there is none. Errors: HoldfastError without koffi. */
export async function openForeign(names: readonly string[]): Promise<ForeignLibrary | undefined> {
  const { Deno: deno } = globalThis as unknown as { readonly Deno?: DenoForeign };
  const open = deno ? (name: string) => denoLibrary(deno, name) : await throughKoffi();
  for (const name of names) {
    try {
      return open(name);
    } catch {
      // The next one.
    }
  }
  return undefined;
}

const KOFFI_TYPES = { int: 'int', address: 'void *', memory: 'void *' } as const satisfies Record<ForeignType, string>;

async function throughKoffi(): Promise<(name: string) => ForeignLibrary> {
  const { default: koffi } = await import('koffi').catch((error: unknown) => {
    throw new HoldfastError(
      `several ranks: npm package "koffi" cannot be loaded (${messageOf(error)}); run npm install koffi`,
    );
  });
  return (name) => {
    const library = koffi.load(name);
    return {
      func: (name, parameters) =>
        library.func(`int ${name}(${parameters.map((type) => KOFFI_TYPES[type]).join(', ')})`) as ForeignFunction,
      addressOf(symbol) {
        try {
          return library.symbol(symbol) as unknown as bigint;
        } catch {
          return undefined;
        }
      },
    };
  };
}

/** What is used of Deno's foreign functions: https://docs.deno.com/runtime/fundamentals/ffi */
interface DenoForeign {
  dlopen(
    name: string,
    symbols: Readonly<Record<string, { readonly parameters: readonly string[]; readonly result: string }>>,
  ): { readonly symbols: Readonly<Record<string, (...given: readonly unknown[]) => unknown>> };
  readonly UnsafePointer: { create(address: bigint): object | null; value(pointer: object | null): bigint | number };
}

const DENO_TYPES = { int: 'i32', address: 'pointer', memory: 'buffer' } as const satisfies Record<ForeignType, string>;
/** Where dlsym is: glibc since 2.34, before it, and macOS. */
const WITH_DLSYM = ['libc.so.6', 'libdl.so.2', '/usr/lib/libSystem.B.dylib'];
const RTLD_LAZY = 1;

function denoLibrary(deno: DenoForeign, name: string): ForeignLibrary {
  // It throws where there is no such library.
  deno.dlopen(name, {});
  const { create, value } = deno.UnsafePointer;
  return {
    func(symbol, parameters) {
      const types = parameters.map((type) => DENO_TYPES[type]);
      const { [symbol]: call } = deno.dlopen(name, { [symbol]: { parameters: types, result: 'i32' } }).symbols;
      const isAddress = parameters.map((type) => type === 'address');
      return (...given) =>
        call?.(
          ...given.map((one, i) => (isAddress[i] && one !== null ? create(BigInt(one as bigint)) : one)),
        ) as number;
    },
    addressOf(symbol) {
      const text = (of: string) => new TextEncoder().encode(`${of}\0`);
      for (const library of WITH_DLSYM) {
        try {
          const { dlopen, dlsym } = deno.dlopen(library, {
            dlopen: { parameters: ['buffer', 'i32'], result: 'pointer' },
            dlsym: { parameters: ['pointer', 'buffer'], result: 'pointer' },
          }).symbols;
          const found = dlsym?.(dlopen?.(text(name), RTLD_LAZY), text(symbol)) as object | null;
          return found === null ? undefined : BigInt(value(found));
        } catch {
          // The next one.
        }
      }
      return undefined;
    },
  };
}
