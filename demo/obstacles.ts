// Obstacles to training on this page, in full sentences: what is missing, and what works all the same.

import { byId, setText } from './page.ts';

const NODE =
  'The same package trains without a browser: clone the repository and run “npm start” (Node 20.19 or later).';

/** The setting that is missing, in words of one line. */
function titleOf(): string {
  if (!globalThis.isSecureContext) return 'This page was not loaded securely';
  if (!navigator.gpu) return 'This browser shows no WebGPU';
  return 'Training cannot start here';
}

function adviceOf(message: string): string {
  if (!globalThis.isSecureContext) return `Browsers give WebGPU and private files to https and localhost only. ${NODE}`;
  if (!navigator.gpu) return `Recent Chrome, Edge, Safari and Firefox have it. ${NODE}`;
  if (/keep no files/.test(message)) {
    return `Private windows of some browsers keep no files: open the page in an ordinary one. ${NODE}`;
  }
  if (/gives no GPU|adapter/.test(message)) {
    return `The browser may have switched its GPU off (see its page about:gpu), or blocked the driver: update both, or try another browser. ${NODE}`;
  }
  return `Loading the page again may help. ${NODE}`;
}

export function showObstacle(message: string): void {
  const box = byId('obstacle', HTMLElement);
  setText(byId('obstacle-title', HTMLElement), titleOf());
  setText(byId('obstacle-text', HTMLElement), `${message}.`);
  setText(byId('obstacle-advice', HTMLElement), adviceOf(message));
  box.hidden = false;
}
