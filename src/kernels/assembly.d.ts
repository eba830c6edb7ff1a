// Type of what config/assembly.ts makes of a file in AssemblyScript: a WebAssembly module, in base64.

declare module '*?wasm' {
  const module: string;
  export default module;
}

declare module '*?wasm-shared' {
  const module: string;
  export default module;
}
