// WebGPU's numbers for usages, map modes and shader stages, as its specification fixes them: Node has no such globals,
// and a library adds none. Only those that are used here.

/** https://www.w3.org/TR/webgpu/#namespacedef-gpubufferusage */
export const GPUBufferUsage = {
  MAP_READ: 0x0001,
  MAP_WRITE: 0x0002,
  COPY_SRC: 0x0004,
  COPY_DST: 0x0008,
  UNIFORM: 0x0040,
  STORAGE: 0x0080,
  QUERY_RESOLVE: 0x0200,
} as const;

/** https://www.w3.org/TR/webgpu/#namespacedef-gpumapmode */
export const GPUMapMode = { READ: 0x0001, WRITE: 0x0002 } as const;

/** https://www.w3.org/TR/webgpu/#namespacedef-gpushaderstage */
export const GPUShaderStage = { COMPUTE: 0x4 } as const;

/** Whether an error of WebGPU's is that memory was short: its class is known by name where there is no such global. */
export function isOutOfMemory(error: GPUError): boolean {
  return error.constructor.name === 'GPUOutOfMemoryError';
}
