// Numbers of a report as a person reads them, for its text and for its scripts.

/** Four significant digits, or a whole number with its thousands in groups. */
export function shortNumber(value: number): string {
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(2);
  if (Math.abs(value) < 1000) return String(Number(value.toPrecision(4)));
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

/** As few characters as an axis has room for: "124M", "10.7M", "820k". */
export function compactNumber(value: number): string {
  if (Math.abs(value) >= 1e9) return `${Number((value / 1e9).toPrecision(3))}G`;
  if (Math.abs(value) >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (Math.abs(value) >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : String(Number(value.toPrecision(4)));
}
