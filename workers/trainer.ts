// The worker that trains: the engine, the GPU device and the chunk manager live here.

import { expose, proxy } from 'comlink';
import { TrainerService } from '../src/browser/service.ts';
import { SCRIPT } from '../src/browser/worker-script.ts';
import { openBrowserHost } from '../src/runtime/browser.ts';

expose({ script: SCRIPT, open: async () => proxy(await TrainerService.open(await openBrowserHost())) });
