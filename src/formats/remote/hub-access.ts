// Access to the hub with an account: its token, on requests of the hub's own address and of nothing else, and where to get in.
//
// Invariant: a token is sent to the hub alone. Files lie elsewhere, to where the hub sends on: fetch drops the header there. It is
// in no message, and nothing here keeps it.

import { HoldfastError, shortened } from '../../util/errors.ts';
import { HUB } from './hub-address.ts';

/** The hub, and an account there. */
export interface HubAccount {
  /** The address of the hub, or of a mirror of it, without a slash at its end. */
  readonly endpoint: string;
  /** An access token of the account. @default none: what is public */
  readonly token?: string | undefined;
}

/** Errors: HoldfastError for what is no address. `name`: what it was given by. */
export function endpointFrom(endpoint: string | undefined, name: string): string {
  if (endpoint === undefined) return HUB;
  const url = URL.canParse(endpoint) ? new URL(endpoint) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || url.search || url.hash || url.username)
    throw new HoldfastError(
      `${name}: ${shortened(url?.origin ?? endpoint)} is no address of a hub; it must be like ${HUB}`,
    );
  return url.href.replace(/\/+$/, '');
}

/** Asks the hub with the account's token, and any other place without. Errors: HoldfastError for what cannot be a token. */
export function asAccount({ endpoint, token }: HubAccount, request: typeof fetch): typeof fetch {
  if (token === undefined) return request;
  // What fetch would say of such a header has the token in it.
  if (!/^[\x21-\x7e]+$/.test(token))
    throw new HoldfastError('the access token of the hub has characters that no token has; copy it again');
  const { origin } = new URL(endpoint);
  return (input, init) => {
    const asked = input instanceof Request ? input : undefined;
    const headers = new Headers(init?.headers ?? asked?.headers);
    const isHub = new URL(asked?.url ?? String(input)).origin === origin;
    if (isHub && !headers.has('authorization')) headers.set('authorization', `Bearer ${token}`);
    return request(input, { ...init, headers });
  };
}

/** On the command line. */
export const GIVING_A_TOKEN = 'set HF_TOKEN';

/** What to do where the hub refuses a model; `giving`: how a token is given. */
export function gettingIn({ endpoint, token }: HubAccount, repo: string, giving: string): string {
  const way = token === undefined ? `and ${giving}` : 'with the account of the access token that was given';
  return `accept its licence at ${endpoint}/${repo} ${way}, or see whether the name is right`;
}
