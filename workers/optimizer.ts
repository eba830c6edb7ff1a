// A thread of the optimizer on the host.

import { threadWorker } from '../src/kernels/adamw-thread.ts';

const answer = threadWorker();
self.onmessage = ({ data }) => self.postMessage(answer(data));
