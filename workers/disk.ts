// The worker that owns OPFS sync access handles.

import { expose } from 'comlink';
import { OpfsDisk } from '../src/runtime/browser/opfs-disk.ts';

expose(new OpfsDisk());
