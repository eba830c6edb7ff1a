// The page's side of the trainer, with a worker that this process plays: functions are passed to it as they are, what cannot be is
// named, and a worker that runs another script ends the opening in one line.

import { expose, proxy } from 'comlink';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { openHoldfast } from '../../src/browser/client.ts';
import { SCRIPT } from '../../src/browser/worker-script.ts';
import { deferred } from '../../src/util/deferred.ts';
import { HoldfastError } from '../../src/util/errors.ts';

/** A worker by what it shows; with nothing, one whose script answers nothing. */
class PlayedWorker extends EventTarget {
  readonly #channel = new MessageChannel();
  ended = false;

  constructor(shown?: object) {
    super();
    const { port1, port2 } = this.#channel;
    port1.onmessage = ({ data }) => this.dispatchEvent(new MessageEvent('message', { data }));
    if (shown) expose(shown, port2 as unknown as Parameters<typeof expose>[1]);
  }

  postMessage(message: unknown, transferred: Transferable[] = []) {
    this.#channel.port1.postMessage(message, transferred);
  }

  terminate() {
    this.ended = true;
    for (const port of [this.#channel.port1, this.#channel.port2]) port.close();
  }
}

class Service {
  listener: ((events: unknown[]) => void) | undefined;
  environment = async () => ({ notes: [] });
  listen(listener: (events: unknown[]) => void) {
    this.listener = listener;
  }
  async sample(_id: string, request: { prompt: string }, onText: (text: string) => void) {
    for (const piece of ['one ', 'two']) await onText(piece);
    return `${request.prompt}one two`;
  }
}

const service = new Service();
const trainerWorker = () => new PlayedWorker({ script: SCRIPT, open: async () => proxy(service) });
const opening = (worker: PlayedWorker) => openHoldfast({ worker: () => worker as unknown as Worker });

beforeEach(() => {
  vi.stubGlobal('navigator', { gpu: {} });
  vi.stubGlobal('Worker', PlayedWorker);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

async function refusal(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => undefined,
    (error) => error,
  );
  expect(error).toBeInstanceOf(HoldfastError);
  expect(error.message).not.toContain('\n');
  return error.message;
}

test('a plain function among the arguments of a method is called in the page, a frozen one too', async () => {
  const { trainer, close } = await opening(trainerWorker());
  const pieces: string[] = [];
  const onText = Object.freeze((piece: string) => void pieces.push(piece));
  expect(await trainer.sample('run', { prompt: 'zero ' }, onText)).toBe('zero one two');
  expect(pieces).toEqual(['one ', 'two']);
  close();
});

test('a function among options, which no worker can be sent, is refused with the method and the argument', async () => {
  const { trainer, close } = await opening(trainerWorker());
  const request = { prompt: 'zero ', adapter: () => {} } as unknown as { prompt: string };
  expect(await refusal(trainer.sample('run', request))).toBe(
    'trainer.sample: argument 2 holds what cannot be sent to a worker, such as a function or an element of the page; leave that out',
  );
  close();
});

test('events come to a plain function', async () => {
  vi.stubGlobal('requestAnimationFrame', (work: () => void) => setTimeout(work));
  const told: unknown[] = [];
  const worker = trainerWorker();
  const { close } = await openHoldfast({
    onEvents: (events) => told.push(...events),
    worker: () => worker as unknown as Worker,
  });
  await service.listener?.([{ type: 'step' }]);
  expect(told).toEqual([{ type: 'step' }]);
  close();
});

test('a worker that answers as another script is refused at once', async () => {
  const worker = new PlayedWorker({ open: async () => proxy(service) });
  expect(await refusal(opening(worker))).toBe(
    'the worker runs another script; it must be a Worker of workers/trainer.js, of the same version',
  );
  expect(worker.ended).toBe(true);
});

test('a worker that never answers is given two minutes', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const worker = new PlayedWorker();
  const told = refusal(opening(worker));
  await vi.advanceTimersByTimeAsync(119_999);
  expect(worker.ended).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  expect(await told).toBe(
    'the worker has not answered for 120 s; it must be a Worker of workers/trainer.js, of the same version',
  );
  expect(worker.ended).toBe(true);
});

test('a service that takes longer than that to open is waited for', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const called = deferred<void>();
  const open = () => {
    called.resolve();
    return new Promise((resolve) => setTimeout(() => resolve(proxy(service)), 300_000));
  };
  const opened = opening(new PlayedWorker({ script: SCRIPT, open }));
  await called.promise;
  await vi.advanceTimersByTimeAsync(300_000);
  (await opened).close();
});

test('an error of the worker ends the opening, however far it is', async () => {
  const events: [object | undefined, string][] = [
    [undefined, 'the worker cannot start: its script was not found'],
    [{ script: SCRIPT, open: () => new Promise(() => {}) }, 'the worker cannot start: x is not defined'],
  ];
  for (const [shown, message] of events) {
    const worker = new PlayedWorker(shown);
    const told = refusal(opening(worker));
    const [, text = ''] = /: (x .*)$/.exec(message) ?? [];
    worker.dispatchEvent(Object.assign(new Event('error'), { message: text }));
    expect(await told).toBe(message);
    expect(worker.ended).toBe(true);
  }
});
