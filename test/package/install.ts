// The package as its users get it: packed, and installed into an empty folder from npm's own cache where it can.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

export const root = path.resolve(import.meta.dirname, '../..');
export const bin = (name: string): string => path.join(root, 'node_modules', '.bin', name);

export interface Project {
  readonly folder: string;
  /** Runs a program in the folder; an error, with all that it printed, where it fails. */
  run(command: string, ...args: string[]): { stdout: string; stderr: string };
  write(name: string, text: string): void;
  remove(): void;
}

/** An empty project with nothing but Holdfast in it. `args`: npm's, such as `--omit=optional`. */
export function install(...args: string[]): Project {
  // A module's own address is its real path.
  const folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'holdfast-installed-')));
  const project: Project = {
    folder,
    run(command, ...args) {
      const { status, stdout, stderr, error } = spawnSync(command, args, { cwd: folder, encoding: 'utf8' });
      if (status === 0) return { stdout, stderr };
      throw new Error(`${command} ${args.join(' ')}: ${error?.message ?? `status ${status}`}\n${stdout}${stderr}`);
    },
    write: (name, text) => writeFileSync(path.join(folder, name), text),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
  try {
    project.write('package.json', JSON.stringify({ name: 'empty', private: true, type: 'module' }));
    const packed = project.run('npm', 'pack', root, '--ignore-scripts', '--json').stdout;
    const tarball = `./${JSON.parse(packed)[0].filename}`;
    const quiet = ['--prefer-offline', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'];
    project.run('npm', 'install', tarball, ...quiet, ...args);
    return project;
  } catch (error) {
    project.remove();
    throw error;
  }
}

/** The README's example of the library, as it stands there. */
export function readmeExample(language: 'ts' | 'js'): string {
  const readme = readFileSync(path.join(root, 'README.md'), 'utf8');
  const [, code] = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(readme) ?? [];
  if (code === undefined) throw new Error(`the README has no ${language} example`);
  return code;
}
