// Symbols of what `using` and `await using` call at the end of a block. Browsers that have none get the symbols that compilers put in
// their place there (esbuild, Babel); nothing global is changed.

/** Of what is ended at once. */
export const DISPOSE: typeof Symbol.dispose = Symbol.dispose ?? Symbol.for('Symbol.dispose');
/** Of what is awaited. */
export const ASYNC_DISPOSE: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose');
