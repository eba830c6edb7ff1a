// Mapping and destroying buffers so that a buffer outlives whatever waits for it to be mapped. Dawn's binding for Node
// writes the answer into the object of the buffer: one that was destroyed or collected before the answer came is
// another object's memory by then, and another promise gets the answer.

const awaited = new Map<GPUBuffer, Promise<unknown>>();

/** As `buffer.mapAsync`, from its first byte on. */
export async function mapBuffer(buffer: GPUBuffer, mode: GPUMapModeFlags, bytes?: number): Promise<void> {
  const answer = buffer.mapAsync(mode, 0, bytes);
  awaited.set(buffer, answer);
  try {
    await answer;
  } finally {
    awaited.delete(buffer);
  }
}

/** Destroys a buffer, as soon as nothing waits for it to be mapped. */
export function destroyBuffer(buffer: GPUBuffer): void {
  const answer = awaited.get(buffer);
  const destroy = () => buffer.destroy();
  if (answer) answer.then(destroy, destroy);
  else destroy();
}
