// A rank whose heap has no room to grow: something is mapped where it ends. Prints by how many bytes that end moves as the
// process joins the other ranks.

import koffi from 'koffi';
import { headlessHost } from '../../dist/headless.js';

const PAGE = 4096;
const MAP_PRIVATE_ANONYMOUS = 0x22;
/** Fails where something is mapped already. */
const MAP_FIXED_NOREPLACE = 0x100000;

const libc = koffi.load(null);
const sbrk = libc.func('intptr_t sbrk(intptr_t)');
const mmap = libc.func('intptr_t mmap(intptr_t, size_t, int, int, int, int64_t)');
const host = headlessHost();
const end = sbrk(0);
mmap(end, PAGE, 0, MAP_PRIVATE_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
await host.joinRanks();
console.log(JSON.stringify({ moved: sbrk(0) - end }));
host.exit(0);
