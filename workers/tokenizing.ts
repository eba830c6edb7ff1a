// A thread that tokenizes.

import { encodingWorker } from '../src/data/encoding-thread.ts';

const answer = encodingWorker();
self.onmessage = ({ data }) => {
  const reply = answer(data);
  if (reply) self.postMessage(reply, { transfer: reply.ids ? [reply.ids.buffer] : [] });
};
