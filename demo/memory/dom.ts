// Elements in one line. No templates, no markup from strings: what is data stays text.

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = '',
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** Writes only what is other: a frame that changes nothing lays nothing out. */
export function write(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A button of a few words; `hint` says more. */
export function button(text: string, hint: string, onClick: () => void): HTMLButtonElement {
  const made = element('button', '', text);
  made.type = 'button';
  made.title = hint;
  made.addEventListener('click', onClick);
  return made;
}
