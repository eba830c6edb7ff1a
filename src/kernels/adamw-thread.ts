// A thread that computes over memories it shares: it makes the calls of a module's functions that are sent to it. Loaded as a script of
// its own (workers/optimizer.ts), so it imports nothing.

/** Calls in a memory, in order. What has a memory or module is sent once, before what needs it. */
export interface ThreadWork {
  readonly id: number;
  readonly module?: WebAssembly.Module;
  /** The memories of a heap by their numbers. */
  readonly number: number;
  readonly memory?: WebAssembly.Memory;
  readonly calls: readonly (readonly [name: string, ...values: number[]])[];
}

/** The calls of the work with this number are done, or failed. */
export interface ThreadReply {
  readonly id: number;
  readonly error?: string;
}

type Functions = Record<string, (...values: number[]) => void>;

/** What answers the messages to a thread. */
export function threadWorker(): (work: ThreadWork) => ThreadReply {
  let module: WebAssembly.Module | undefined;
  const instances: Functions[] = [];
  return ({ id, module: given, number, memory, calls }) => {
    try {
      module = given ?? module;
      if (memory && module) {
        instances[number] = new WebAssembly.Instance(module, { env: { memory } }).exports as unknown as Functions;
      }
      for (const [name, ...values] of calls) {
        const run = instances[number]?.[name];
        if (!run) throw new Error(`there is no ${name} in memory ${number}`);
        run(...values);
      }
      return { id };
    } catch (error) {
      return { id, error: String(error) };
    }
  };
}
