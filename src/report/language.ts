// The browser's language, made one that Intl takes: Chromium says "en-US@posix" where the system's locale is C, and
// uPlot gives that to Intl as it loads, which throws. Runs before uPlot, on the page and in the report, whose page holds
// its text: it refers to nothing outside itself.

/** To be called before uPlot is loaded, where the language may be none. */
export function mendLanguage(): void {
  const takes = (language: string): boolean => {
    try {
      new Intl.NumberFormat(language);
      return true;
    } catch {
      return false;
    }
  };
  const said = navigator.language;
  if (takes(said)) return;
  const plain = said.replace(/[@.].*$/, '').replace('_', '-');
  Object.defineProperty(navigator, 'language', { value: takes(plain) ? plain : 'en-US', configurable: true });
}
