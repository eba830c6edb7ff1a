// A run's report, in a tab of its own: in a frame without this site's origin, so that nothing in it can reach the runs
// that are kept here, wherever the run came from. The tab is report.html; this file fills it.
//
// Invariant: no report is ever a document with this site's origin. Where a tab cannot be had, it is a download.

import { save } from './page.ts';

/** A tab that is not there by then, or that this page may not touch, gets no report. */
const PATIENCE_MS = 20_000;

/** To be called while a press of a button still counts, or the tab may be kept from opening. */
export async function showReport(name: string, asked: Promise<File>): Promise<void> {
  const tab = window.open(new URL('report.html', document.baseURI));
  let file: File;
  try {
    file = await asked;
  } catch (error) {
    tab?.close();
    throw error;
  }
  const page = tab && (await loaded(tab));
  if (!page) return save(file);
  const [frame, button, title] = ['report', 'save', 'name'].map((id) => page.getElementById(id));
  if (!frame || !button || !title) throw new Error('internal: report.html is another page');
  page.title = `${name}: report`;
  title.textContent = name;
  button.addEventListener('click', () => save(file));
  (frame as HTMLIFrameElement).srcdoc = await file.text();
  frame.hidden = button.hidden = false;
}

/** None that this page may not touch: a browser's own, where the site did not answer. */
function documentOf(tab: Window): Document | undefined {
  try {
    return tab.document;
  } catch {
    return undefined;
  }
}

async function loaded(tab: Window): Promise<Document | undefined> {
  for (const end = performance.now() + PATIENCE_MS; performance.now() < end; ) {
    // To a tab in another browsing context group, this one is closed.
    if (tab.closed) return undefined;
    const page = documentOf(tab);
    if (page?.readyState === 'complete' && page.getElementById('report')) return page;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  tab.close();
  return undefined;
}
