// Functions of the system's own C library, called by Deno's means and through koffi: numbers, addresses and memory as arguments.

import process from 'node:process';
import { assert, beforeAll, describe, expect, test } from 'vitest';
import { type ForeignLibrary, openForeign } from '../../src/runtime/headless/mpi/foreign.ts';

const C_LIBRARY = ['libnone.so.7', 'libc.so.6', '/usr/lib/libSystem.B.dylib'];

test('there is none where none of the names is a library', async () => {
  expect(await openForeign(['libnone.so.7', 'libnone.so.8'])).toBe(undefined);
});

describe.skipIf(process.platform === 'win32')('the C library', () => {
  let library: ForeignLibrary;
  beforeAll(async () => {
    const found = await openForeign(C_LIBRARY);
    assert(found, 'every system has one');
    library = found;
  });

  test('gives and takes ints', () => {
    expect(library.func('getpid', [])()).toBe(process.pid);
    expect(library.func('abs', ['int'])(-7)).toBe(7);
  });

  test('reads memory, and writes it in place', () => {
    const [one, other] = ['hold', 'fast'].map((text) => new Uint8Array([...new TextEncoder().encode(text), 0]));
    assert(one && other);
    expect(library.func('strcmp', ['memory', 'memory'])(one, other)).toBeGreaterThan(0);
    library.func('memcpy', ['memory', 'memory', 'int'])(one, other, 5);
    expect(one).toEqual(other);
    expect(library.func('strcmp', ['memory', 'memory'])(one, other)).toBe(0);
  });

  test('knows where its symbols lie, and takes addresses, also of nothing', () => {
    const at = library.addressOf('getpid');
    assert(at !== undefined, 'it has it');
    expect(at).toBeGreaterThan(0n);
    const [copy, again] = [new Uint8Array(new ArrayBuffer(8)), new Uint8Array(new ArrayBuffer(8))];
    const copied = library.func('memcpy', ['memory', 'address', 'int']);
    copied(copy, at, 8);
    copied(again, at, 8);
    expect(copy).toEqual(again);
    expect(copy.some((byte) => byte !== 0)).toBe(true);
    expect(library.func('time', ['address'])(null)).not.toBe(0);
    expect(library.addressOf('no_such_symbol')).toBe(undefined);
    expect(() => library.func('no_such_function', [])()).toThrow('no_such_function');
  });
});
