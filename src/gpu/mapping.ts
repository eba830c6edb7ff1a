// Mapping a buffer so that it stays in memory until it is answered. Dawn's binding for Node writes the answer into the
// object of the buffer and does not keep it: one that is destroyed or forgotten and then collected before the answer
// comes is somebody else's memory by then, and somebody else's promise gets the answer.

const awaited = new Set<GPUBuffer>();

/** Behind the early error for a buffer that was destroyed, the answer proper may still come. */
const LATE_ANSWER_MS = 500;

/** As `buffer.mapAsync`. */
export async function mapBuffer(buffer: GPUBuffer, mode: GPUMapModeFlags, size?: number): Promise<void> {
  awaited.add(buffer);
  try {
    await buffer.mapAsync(mode, 0, size);
    awaited.delete(buffer);
  } catch (error) {
    setTimeout(() => awaited.delete(buffer), LATE_ANSWER_MS);
    throw error;
  }
}
