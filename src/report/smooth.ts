// A curve that noise hides, made visible: for the report and for the page that shows a run while it trains.

/** One value a point; null where there is none. */
export type Column = (number | null)[];

/** Six digits are more than a screen shows; what is not a finite number is a gap. */
export function short(value: number | undefined): number | null {
  return value !== undefined && Number.isFinite(value) ? Number(value.toPrecision(6)) : null;
}

/**
 * Moving average over about a fortieth of the run, centred so that it does not lag behind a falling curve.
 * The window narrows on both sides towards the first step, where curves are steep, and on one at the last.
 */
export function smooth(values: Column): Column {
  const reach = Math.floor(values.length / 80);
  const sums = [0];
  const counts = [0];
  values.forEach((value, i) => {
    sums.push(sums[i] + (value ?? 0));
    counts.push(counts[i] + (value === null ? 0 : 1));
  });
  return values.map((value, i) => {
    if (value === null) return null;
    const from = i - Math.min(reach, i);
    const to = Math.min(values.length, i + Math.min(reach, i) + 1);
    return short((sums[to] - sums[from]) / (counts[to] - counts[from]));
  });
}
