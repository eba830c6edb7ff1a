// The page's elements, found once and by their ids. An id that is missing, or on another kind of element, is our own
// mistake and says so at once.

export function byId<T extends HTMLElement>(id: string, kind: abstract new (...args: never[]) => T): T {
  const found = document.getElementById(id);
  if (found instanceof kind) return found;
  throw new Error(`internal: the page has no ${kind.name} #${id}`);
}

/** A new element, with its text and what else it is given. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** Of a reading that is rewritten all the time: it is read when it is looked for, not spoken each time. */
export const SILENT = { ariaLive: 'off' } as const;

/** Writes only what is other, so that nothing is laid out anew for a text that stays. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** By the keyboard too. */
export function scrollable(element: HTMLElement): void {
  element.tabIndex = 0;
}

/** Whether pressing it does something; one that is out of use for a while keeps the focus. */
export function setUsable(button: HTMLButtonElement, usable: boolean): void {
  button.ariaDisabled = usable ? null : 'true';
}

/** A button of a few words; `hint` says more. */
export function button(text: string, hint: string, onClick: () => void): HTMLButtonElement {
  const made = make('button', { type: 'button', title: hint }, text);
  made.addEventListener('click', onClick);
  return made;
}

/** A select of names and what they are called. */
export function choice<T extends string>(names: Readonly<Record<T, string>>): HTMLSelectElement {
  const options = Object.entries(names) as [T, string][];
  return make('select', {}, ...options.map(([value, text]) => make('option', { value }, text)));
}

/** Offers a file for download. */
export function save(file: File): void {
  const url = URL.createObjectURL(file);
  const link = make('a', { href: url, download: file.name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
