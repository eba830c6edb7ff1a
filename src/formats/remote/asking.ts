// Requests to servers that may be slow, broken or hostile: one that says nothing counts as lost after a while, also between the
// pieces of its answer, and an answer that is taken whole has a limit. What fetch throws of the network is Interrupted, with its reason.

import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError, messageOf } from '../../util/errors.ts';
import { Interrupted } from './remote.ts';

/** Until the head of an answer has come, and between its pieces. */
const SILENT_MS = 30_000;
/** Of an answer that is taken whole: a list of files, and what an error says. */
const MOST_ANSWER_BYTES = 2 ** 24;

export interface Care {
  /** Whether an answer is taken whole; what is no success always is. @default none */
  readonly isWhole?: (url: string) => boolean;
  /** Silence after which a server counts as lost, in milliseconds. */
  readonly silence?: number;
}

/** Asks with care. Errors: Interrupted where the network fails, from the body too; HoldfastError, from the body, for an answer that is too long. */
export function carefully(request: typeof fetch, care: Care = {}): typeof fetch {
  const { isWhole = () => false, silence = SILENT_MS } = care;
  return async (input, init) => {
    const url = input instanceof Request ? input.url : String(input);
    const given = init?.signal ?? (input instanceof Request ? input.signal : undefined);
    const watch = watchOf(silence);
    try {
      const signal = given ? AbortSignal.any([given, watch.signal]) : watch.signal;
      const response = await request(input, { ...init, signal });
      const most = !response.ok || isWhole(url) ? MOST_ANSWER_BYTES : Number.POSITIVE_INFINITY;
      return watched(response, url, watch, most);
    } catch (error) {
      throw given?.aborted ? error : watch.reasonFor(error);
    } finally {
      watch.end();
    }
  };
}

interface Watch {
  readonly signal: AbortSignal;
  /** Something came, or is waited for from now on. */
  begin(): void;
  end(): void;
  reasonFor(error: unknown): Error;
}

function watchOf(silence: number): Watch {
  const abort = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const end = () => clearTimeout(timer);
  const begin = () => {
    end();
    timer = setTimeout(() => abort.abort(), silence);
  };
  begin();
  return {
    ...{ signal: abort.signal, begin, end },
    reasonFor: (error) => {
      if (abort.signal.aborted) return new Interrupted(`nothing came for ${silence / 1000} s`);
      return error instanceof HoldfastError || error instanceof Interrupted ? error : new Interrupted(reasonOf(error));
    },
  };
}

/** An answer that may not fall silent while it is read, and of which at most so many bytes are taken. */
function watched(response: Response, url: string, watch: Watch, most: number): Response {
  const reader = response.body?.getReader();
  if (!reader) return response;
  let bytes = 0;
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        try {
          watch.begin();
          const { done, value } = await reader.read();
          if (done) return controller.close();
          bytes += value.length;
          if (bytes > most)
            throw new HoldfastError(
              `${new URL(url).host}: its answer is longer than ${formatBytes(most)}; see whether the address is right`,
            );
          controller.enqueue(value);
        } catch (error) {
          controller.error(watch.reasonFor(error));
          await reader.cancel().catch(() => {});
        } finally {
          watch.end();
        }
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
  const headers = new Headers(response.headers);
  // What an error says is text, whatever it calls itself: a broken one is still that error.
  if (!response.ok) headers.delete('content-type');
  const { status, statusText } = response;
  const answer = new Response(body, { status, statusText, headers });
  // Where redirects led to; no constructor takes it.
  return Object.defineProperty(answer, 'url', { value: response.url });
}

/** fetch() says "fetch failed", and why in the cause. */
export function reasonOf(error: unknown): string {
  const { cause } = error as { cause?: unknown };
  return cause === undefined ? messageOf(error) : `${messageOf(error)}: ${messageOf(cause)}`;
}
