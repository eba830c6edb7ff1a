#!/usr/bin/env node
// The command line's entry: the headless host, and the commands on it.

import { headlessHost } from '../runtime/headless.ts';
import { run } from './run.ts';

const host = headlessHost();
host.exit(await run(host));
