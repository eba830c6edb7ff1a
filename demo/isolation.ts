// Isolation of the page (COOP, COEP) by a service worker, where the host sends no such headers; the page has to be
// loaded once more for that. Without it all works, with a slower disk tier.

const TRIED = 'holdfast isolation tried';
/** A service worker that is not there by then (it failed, or a browser's setting keeps it out) is not waited for. */
const PATIENCE_MS = 3000;

/** Whether the page is about to be loaded anew: nothing should be started then. */
export async function isolate(): Promise<boolean> {
  if (globalThis.crossOriginIsolated || !globalThis.isSecureContext || !('serviceWorker' in navigator)) return false;
  try {
    if (sessionStorage.getItem(TRIED)) return false;
    sessionStorage.setItem(TRIED, 'yes');
    await navigator.serviceWorker.register(new URL('isolation-sw.js', document.baseURI));
    const patience = new Promise<undefined>((resolve) => setTimeout(resolve, PATIENCE_MS));
    if (!(await Promise.race([navigator.serviceWorker.ready, patience]))) return false;
    location.reload();
    return true;
  } catch {
    return false;
  }
}
