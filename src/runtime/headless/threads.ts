// Threads for Node and Deno: a file of workers/, built into one script, in a worker of its own.

import os from 'node:os';
import { Worker } from 'node:worker_threads';
import type { Thread, ThreadEvents, Threads, ThreadWorker } from '../host.ts';

/** The globals of a browser that the scripts use. */
const PRELUDE = `const { parentPort } = require('node:worker_threads');
globalThis.self = { postMessage: (message, options) => parentPort.postMessage(message, options?.transfer) };
parentPort.on('message', (data) => globalThis.self.onmessage({ data }));
`;

const scripts: Record<ThreadWorker, () => Promise<{ readonly default: string }>> = {
  optimizer: () => import('../../../workers/optimizer.ts?script'),
  tokenizing: () => import('../../../workers/tokenizing.ts?script'),
};

export const threads: Threads = {
  count: os.availableParallelism(),
  async start(worker, events) {
    const { default: script } = await scripts[worker]();
    return startScript(script, events);
  },
};

export function startScript(script: string, { message, failed }: ThreadEvents): Thread {
  // Without the options of this process: `--input-type=module` would be the script's, too.
  const thread = new Worker(PRELUDE + script, { eval: true, execArgv: [] });
  thread.on('message', message);
  thread.on('error', failed);
  thread.on('exit', (code) => failed(new Error(`it ended with status ${code}`)));
  // An idle thread keeps no process alive.
  thread.unref();
  return {
    post(data) {
      thread.postMessage(data);
    },
    keepAlive: (busy) => (busy ? thread.ref() : thread.unref()),
    async end() {
      await thread.terminate();
    },
  };
}
