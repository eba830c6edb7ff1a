import { describe, expect, test } from 'vitest';
import { type RunRecord, renderReport } from '../../src/train/report.ts';

const run: RunRecord = {
  title: 'a <run> & "more"',
  settings: { seed: 12345, model: '<b>gpt2</b>' },
  summary: { tokens: 1234567, loss: 0.46891, 'wall time': '2 s' },
  steps: Array.from({ length: 400 }, (_, step) => ({
    step,
    loss: step === 7 ? Number.NaN : 5 - step / 100 + (step % 2 ? 0.5 : -0.5),
    lr: 1e-3,
    gradNorm: 1,
    tokensPerSecond: 1000,
  })),
  validations: [
    { step: 0, loss: 5 },
    { step: 400, loss: 1 },
  ],
  samples: [
    { step: 10, text: 'earlier' },
    { step: 400, text: '</script><script>alert(1)</script>' },
  ],
};

/** What the page draws. */
function dataOf(html: string) {
  const json = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html)?.[1] ?? '';
  return JSON.parse(json) as {
    x: number[];
    charts: { title: string; series: { label: string; values: (number | null)[] }[] }[];
  };
}

describe('renderReport', () => {
  const html = renderReport(run);

  test('loads nothing', () => {
    expect(html).not.toMatch(/<[^>]+\s(src|srcset)\s*=/i);
    expect(html.match(/<[^>]+\shref\s*=[^>]+>/gi)).toEqual(['<link rel="icon" href="data:,">']);
    expect(html).not.toMatch(/@import|url\(|fetch\(|XMLHttpRequest|import\(/);
  });

  test('escapes what comes from the run', () => {
    expect(html).toContain('<h1>a &lt;run&gt; &amp; &quot;more&quot;</h1>');
    expect(html).toContain('&lt;b&gt;gpt2&lt;/b&gt;');
    expect(html).toContain('&lt;/script&gt;&lt;script&gt;alert(1)');
    expect(html.match(/<script/g)?.length).toBe(3);
    expect(html.match(/<\/script/g)?.length).toBe(3);
  });

  test('its scripts parse', () => {
    for (const [, script] of html.matchAll(/<script>(.*?)<\/script>/gs))
      expect(() => new Function(script)).not.toThrow();
  });

  test('has the curves over one axis of steps; what is no number is a gap', () => {
    const { x, charts } = dataOf(html);
    expect(x).toEqual(Array.from({ length: 401 }, (_, i) => i));
    expect(charts.map(({ title }) => title)).toEqual(['Loss', 'Speed', 'Learning rate', 'Gradient norm']);
    const [raw, smoothed, validation] = charts[0].series;
    for (const { series } of charts) for (const { values } of series) expect(values.length).toBe(x.length);
    expect([raw.values[6], raw.values[7], raw.values[400]]).toEqual([4.44, null, null]);
    expect(smoothed.values[7]).toBe(null);
    expect([validation.values[0], validation.values[1], validation.values[400]]).toEqual([5, null, 1]);
  });

  test('smoothing follows a falling line without lag and flattens its noise', () => {
    const smoothed = dataOf(html).charts[0].series[1].values;
    // Eleven alternating values of +-0.5 leave at most 0.5 / 11 of noise.
    for (let step = 20; step < 395; step++) {
      expect(Math.abs((smoothed[step] as number) - (5 - step / 100))).toBeLessThanOrEqual(0.5 / 11 + 1e-4);
    }
  });

  test('summary numbers are readable, settings are as they were given', () => {
    expect(html).toContain('<dd>1\u202f234\u202f567</dd>');
    expect(html).toContain('<dd>0.4689</dd>');
    expect(html).toContain('<dd>12345</dd>');
  });

  test('shows the last sample open and earlier ones folded', () => {
    expect(html.indexOf('<details open><summary>Step 400')).toBeGreaterThan(0);
    expect(html.indexOf('<details><summary>Step 10')).toBeGreaterThan(html.indexOf('<details open>'));
  });

  test('a run without a step is a page without curves', () => {
    const page = renderReport({ ...run, steps: [], validations: [], samples: [] });
    expect(page).not.toContain('<figure');
    expect(dataOf(page)).toEqual({ x: [], charts: [] });
  });
});
