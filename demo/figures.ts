// Numbers as people read them.

/** "0.01234", "1.724", "12,345": four significant digits, or a whole number in groups. */
export function plain(value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(2);
  if (Math.abs(value) < 1000) return String(Number(value.toPrecision(4)));
  return whole(value);
}

/** "12,345" */
export function whole(value: number): string {
  return Math.round(value).toLocaleString('en');
}

/** "5.4", "120", "12k": of what is known about as well as that. */
export function rough(value: number): string {
  return short(Number(value.toPrecision(2)));
}

/** "124M", "10.7M", "820k" */
export function short(value: number): string {
  if (Math.abs(value) >= 1e9) return `${Number((value / 1e9).toPrecision(3))}G`;
  if (Math.abs(value) >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (Math.abs(value) >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : String(Number(value.toPrecision(4)));
}

/** "40 s", "3 min 20 s", "2 h 5 min", "3 days" */
export function longDuration(seconds: number): string {
  if (!Number.isFinite(seconds)) return '–';
  const s = Math.max(1, Math.round(seconds));
  if (s < 100) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s < 600 && s % 60 ? ` ${s % 60} s` : ''}`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${whole(s / 86_400)} days`;
}

/** "64.2 ms", "1.24 s", "8 min 20 s" */
export function shortDuration(seconds: number): string {
  if (seconds < 0.9995) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  return seconds < 100 ? `${Number(seconds.toPrecision(3))} s` : longDuration(seconds);
}

/** "just now", "5 min ago" */
export function ago(milliseconds: number): string {
  const seconds = (Date.now() - milliseconds) / 1000;
  if (seconds < 60) return 'just now';
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} days ago`;
}
