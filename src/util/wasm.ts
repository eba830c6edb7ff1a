// WebAssembly modules as config/assembly.ts puts them into a build.

/** The module of these bytes in base64. Errors: WebAssembly's, where the place does not allow it. */
export const moduleOf = (base64: string): WebAssembly.Module =>
  new WebAssembly.Module(Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)));
