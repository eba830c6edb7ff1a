// Access to the Hugging Face hub, where its own tools have it from: the environment, or the file that a login wrote.

import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import type { HubAccess } from '../host.ts';
import { files } from './files.ts';

const { env } = process;

const MOST_TOKEN_BYTES = 2 ** 16;

export const hubAccess = (): HubAccess => ({
  ...(env['HF_ENDPOINT'] && { endpoint: env['HF_ENDPOINT'] }),
  async token() {
    if (/^(?:1|on|yes|true)$/i.test(env['HF_HUB_DISABLE_IMPLICIT_TOKEN'] ?? '')) return undefined;
    const named = trimmed(env['HF_TOKEN']) ?? trimmed(env['HUGGING_FACE_HUB_TOKEN']);
    return named ?? trimmed(await loginToken().catch(() => undefined));
  },
});

const trimmed = (text: string | undefined): string | undefined => text?.trim() || undefined;

/** Of a file, or of a pipe, as `HF_TOKEN_PATH=<(command)` is one. */
async function loginToken(): Promise<string | undefined> {
  const { kind = 'other' } = (await files.stat(tokenPath())) ?? {};
  return kind === 'other' ? undefined : new TextDecoder().decode(await files.read(tokenPath(), MOST_TOKEN_BYTES));
}

/** Where a login keeps the token: HF_TOKEN_PATH, or `token` in the tools' own folder. */
function tokenPath(): string {
  const cache = env['XDG_CACHE_HOME'] || path.join(os.homedir(), '.cache');
  const home = env['HF_HOME'] || path.join(cache, 'huggingface');
  return (env['HF_TOKEN_PATH'] || path.join(home, 'token')).replace(/^~(?=[/\\]|$)/, os.homedir());
}
