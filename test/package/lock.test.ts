// What `npm ci` needs of the lock on every system: all packages that it names, with their checksums and no host.

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

interface Locked {
  version?: string;
  integrity?: string;
  resolved?: string;
  link?: boolean;
  os?: string[];
  cpu?: string[];
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
}

const lock = path.resolve(import.meta.dirname, '../../package-lock.json');
const packages: Record<string, Locked> = JSON.parse(readFileSync(lock, 'utf8')).packages;

/** Where Node would find a package from the place of another. */
function find(from: string, name: string): string | undefined {
  for (let place = from; ; place = place.slice(0, Math.max(0, place.lastIndexOf('node_modules/') - 1))) {
    const candidate = `${place === '' ? '' : `${place}/`}node_modules/${name}`;
    if (packages[candidate]) return candidate;
    if (place === '') return undefined;
  }
}

test('every package that a locked one depends on is locked, the optional ones of other systems too', () => {
  const missing = Object.entries(packages).flatMap(([place, { dependencies, optionalDependencies }]) =>
    Object.keys({ ...dependencies, ...optionalDependencies })
      .filter((name) => !find(place, name))
      .map((name) => `${name} for ${place}`),
  );
  expect(missing).toEqual([]);
});

test.each([
  ['darwin', 'arm64'],
  ['darwin', 'x64'],
  ['win32', 'x64'],
  ['linux', 'x64'],
  ['linux', 'arm64'],
])('what comes as one package a system comes for %s on %s', (os, cpu) => {
  const native = Object.entries(packages).filter(([, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies).some((name) => /darwin|win32/.test(name)),
  );
  expect(native.map(([place]) => place.split('node_modules/').at(-1))).toEqual(
    expect.arrayContaining(['@biomejs/biome', 'deno', 'koffi', 'lightningcss', 'rolldown', 'typescript']),
  );
  for (const [place, { optionalDependencies = {} }] of native) {
    const offered = Object.keys(optionalDependencies).map((name) => packages[find(place, name) ?? '']);
    const fits = offered.filter((locked) => locked?.os?.includes(os) && locked.cpu?.includes(cpu));
    expect(fits.length, place).toBeGreaterThan(0);
  }
});

test('every package has its checksum, and none names the host that it was loaded from', () => {
  for (const [place, { integrity, resolved, link }] of Object.entries(packages)) {
    if (place === '' || link) continue;
    expect(integrity, place).toMatch(/^sha512-/);
    expect(resolved, place).toBeUndefined();
  }
});
