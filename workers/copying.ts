// A thread that copies bytes within the process's memory: of Node alone.

import { type CopyingThread, copyForEver, type Koffi, memmoveOf } from '../src/runtime/headless/copying-thread.ts';

interface NodeModules {
  createRequire(from: string): (name: string) => unknown;
}

declare const process: {
  readonly platform: string;
  getBuiltinModule(name: 'node:module'): NodeModules;
};

self.onmessage = ({ data }: MessageEvent<CopyingThread>) => {
  const koffi = process.getBuiltinModule('node:module').createRequire(data.koffi)(data.koffi) as Koffi;
  const memmove = memmoveOf(koffi, process.platform === 'win32');
  self.postMessage('ready');
  copyForEver(data, memmove);
};
