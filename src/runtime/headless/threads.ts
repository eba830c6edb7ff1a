// Threads for Node and Deno: workers/optimizer.ts, built into one script, in a worker of its own.

import os from 'node:os';
import { Worker } from 'node:worker_threads';
import type { Threads } from '../host.ts';

/** The globals of a browser that the script uses. */
const PRELUDE = `const { parentPort } = require('node:worker_threads');
globalThis.self = { postMessage: (message) => parentPort.postMessage(message) };
parentPort.on('message', (data) => globalThis.self.onmessage({ data }));
`;

export const threads: Threads = {
  count: os.availableParallelism(),
  async start({ message, failed }) {
    const { default: script } = await import('../../../workers/optimizer.ts?script');
    const worker = new Worker(PRELUDE + script, { eval: true });
    worker.on('message', message);
    worker.on('error', failed);
    worker.on('exit', (code) => failed(new Error(`it ended with status ${code}`)));
    // An idle thread keeps no process alive.
    worker.unref();
    return {
      post(data) {
        worker.postMessage(data);
      },
      keepAlive: (busy) => (busy ? worker.ref() : worker.unref()),
      async end() {
        await worker.terminate();
      },
    };
  },
};
