// The content security policies of the page, its workers and the tab that shows a report, by path: what each may load,
// run and connect to. The built page says its own in a meta element; workers have only what their responses say, which
// `npm run demo` and the service worker see to.

const NOTHING_ELSE = ["default-src 'none'", 'img-src data:', "base-uri 'none'", "form-action 'none'"];
const OWN = ["script-src 'self'", "worker-src 'self'", "connect-src 'self'", "style-src 'self'"];

/** Of the page: what its own site serves, and nothing inline. */
export const PAGE = [...NOTHING_ELSE, ...OWN].join('; ');

/** Models by their names are read by a worker: of the hub, and of the hosts that it sends their files from. */
const HUB = "connect-src 'self' https://huggingface.co https://*.huggingface.co https://*.hf.co";

/** The LP solver is WebAssembly, and runs in a worker alone. */
const WORKER = [
  ...NOTHING_ELSE,
  ...["script-src 'self' 'wasm-unsafe-eval'", "worker-src 'self'", HUB, "style-src 'self'"],
].join('; ');

/**
 * A frame has its parent's policy beside its own. A report says by their hashes which scripts it runs, and those differ
 * from version to version; the tab around it has none.
 */
export const VIEWER = [...NOTHING_ELSE, "script-src 'unsafe-inline'", "style-src 'unsafe-inline'"].join('; ');

/** The header of a response; a path ends with the file's name, or with "/" for the page. */
export function policyOf(path: string): string {
  if (path.endsWith('/report.html')) return `${VIEWER}; frame-ancestors 'none'`;
  return /\/(?:index\.html)?$/.test(path) ? `${PAGE}; frame-ancestors 'none'` : WORKER;
}
