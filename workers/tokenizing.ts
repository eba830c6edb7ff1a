// A thread that tokenizes.

import { encodingWorker } from '../src/data/encoding-thread.ts';

const answer = encodingWorker();
self.onmessage = ({ data }) => {
  const reply = answer(data);
  const { ids = [], learned = [] } = reply?.encoded ?? {};
  if (reply) self.postMessage(reply, { transfer: [...ids, ...learned].map(({ buffer }) => buffer) });
};
