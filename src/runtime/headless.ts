// The headless host: with its folder, the one place that names Node and Deno. Both read files and
// the terminal through the node: modules; they differ in where WebGPU comes from (npm `webgpu`, or the runtime's own).

import * as fs from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { startCopying } from './headless/copy-threads.ts';
import { files } from './headless/files.ts';
import { claimFolder, claimNextFolder } from './headless/folder-lock.ts';
import { denoSources, nodeSources } from './headless/gpu-sources.ts';
import { hubAccess } from './headless/hub-access.ts';
import { readLines } from './headless/lines.ts';
import { joinRanks, leaveRanks } from './headless/mpi/messages.ts';
import { cacheFolder, packageFolder } from './headless/places.ts';
import { resumeFile } from './headless/resumed-file.ts';
import { isWritten, onInterrupt, readStandardInput, terminal } from './headless/terminal.ts';
import { threads } from './headless/threads.ts';
import { openBlockFile } from './headless/tier-file.ts';
import { type Host, UNWRITTEN } from './host.ts';

const isDeno = 'Deno' in globalThis;

/** The host for Node and Deno. */
export function headlessHost(): Host {
  return {
    name: isDeno ? `Deno ${process.versions['deno']}` : `Node ${process.versions.node}`,
    version: async () => JSON.parse(await fs.readFile(path.join(packageFolder(), 'package.json'), 'utf8')).version,
    args: process.argv.slice(2),
    files,
    terminal,
    gpuSources: isDeno ? denoSources : nodeSources,
    exampleText: () => files.read(path.join(packageFolder(), 'assets', 'example.txt.gz')),
    cacheFolder: cacheFolder(),
    memoryBytes: os.totalmem(),
    openBlockFile,
    claimFolder,
    claimNextFolder,
    resumeFile,
    threads,
    ...(!isDeno && { startCopying }),
    hub: hubAccess(),
    readStandardInput,
    readLines,
    joinRanks,
    onInterrupt,
    exit(status) {
      void isWritten().then((all) => {
        const told = all || status !== 0 ? status : UNWRITTEN;
        leaveRanks(told);
        process.exit(told);
      });
    },
  };
}
