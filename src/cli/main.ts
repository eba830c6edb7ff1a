#!/usr/bin/env node
// The command line's entry: the headless host, and the commands on it.

import { headlessHost } from '../runtime/headless.ts';
import { run } from './run.ts';

/** The exit status of an error that is no bad input. */
const INTERNAL_ERROR = 1;

const host = headlessHost();
const status = await run(host).catch((error: unknown) => {
  host.terminal.warn(`${error instanceof Error ? error.stack : error}\n`);
  return INTERNAL_ERROR;
});
// Also of a mistake of its own: the other ranks of a job end with this one.
host.exit(status);
