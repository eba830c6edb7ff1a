// An interrupt in the middle of what is written: a host's `onInterrupt` for files whose n-th write brings it.

import type { MemoryFiles } from '../memory-files.ts';

export function interruptAtWrite(files: MemoryFiles, n: number): (callback: () => void) => void {
  const { writeStream } = files;
  let [interrupt, writes] = [() => {}, 0];
  files.writeStream = async (at) => {
    const stream = await writeStream.call(files, at);
    const write = async (bytes: Uint8Array) => {
      if (++writes === n) interrupt();
      await stream.write(bytes);
    };
    return { ...stream, write };
  };
  return (callback) => {
    interrupt = callback;
  };
}
