// The report as text: what it holds, and what no run can make it hold. How it looks and runs is tested in a browser.

import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { dataOf, html as template } from '../../src/report/html.ts';
import { type ReportContent, renderReport } from '../../src/report/report.ts';
import { leading } from '../entry.ts';

const run: ReportContent = {
  title: 'a <run> & "more"',
  settings: { seed: 12345, minLr: 0.006 / 10, model: '<b>gpt2</b>' },
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
function drawnBy(html: string) {
  const json = /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html)?.[1] ?? '';
  return JSON.parse(json) as {
    x: number[];
    charts: { title: string; series: { label: string; values: (number | null)[] }[] }[];
  };
}

describe('renderReport', async () => {
  const html = await renderReport(run);

  test('loads nothing', () => {
    expect(html).not.toMatch(/<[^>]+\s(src|srcset)\s*=/i);
    expect(html.match(/<[^>]+\shref\s*=[^>]+>/gi)).toEqual(['<link rel="icon" href="data:,">']);
    expect(html).not.toMatch(/@import|url\(|fetch\(|XMLHttpRequest|import\(/);
  });

  test('escapes what comes from the run', () => {
    expect(html).toContain('<h1>a &lt;run&gt; &amp; &quot;more&quot;</h1>');
    expect(html).toContain('&lt;b&gt;gpt2&lt;/b&gt;');
    expect(html).toContain('&lt;/script&gt;&lt;script&gt;alert(1)');
    expect(html.match(/<script/g)?.length).toBe(4);
    expect(html.match(/<\/script/g)?.length).toBe(4);
  });

  test('its policy lets its own scripts and styles run, by their bytes, and nothing else', () => {
    const policy = /<meta http-equiv="Content-Security-Policy" content="([^"]*)">/.exec(html)?.[1] ?? '';
    const directives = policy.replaceAll('&#39;', "'").split('; ');
    const hashes = (pattern: RegExp) =>
      [...html.matchAll(pattern)]
        .map(([, text = '']) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`)
        .join(' ');
    expect(directives).toEqual([
      "default-src 'none'",
      `script-src ${hashes(/<script>(.*?)<\/script>/gs)}`,
      `style-src ${hashes(/<style>(.*?)<\/style>/gs)}`,
      'img-src data:',
      "base-uri 'none'",
      "form-action 'none'",
    ]);
    expect(html.indexOf(policy)).toBeLessThan(html.indexOf('<title>'));
    expect(html.replaceAll(/<(script|style)[^>]*>.*?<\/\1>/gs, '')).not.toMatch(/<[^>]*\s(style|on\w+)\s*=/i);
  });

  test('whatever stands in any field of a run, of whatever type, it makes no element and no attribute', async () => {
    const marks = [
      `<i-${'x'}>`,
      '"><i-x>',
      "'><i-x>",
      '</script><i-x>',
      '</style><i-x>',
      '</title><i-x>',
      '" onload="i-x',
    ];
    const anything = fc.oneof(fc.constantFrom(...marks), fc.string(), fc.double(), fc.constant(null));
    // Files are read as they are: their types are only hoped for.
    const text = anything as fc.Arbitrary<never>;
    const step = fc.record({ step: text, loss: text, lr: text, gradNorm: text, tokensPerSecond: text });
    const runs = fc.record({
      title: text,
      settings: fc.dictionary(fc.oneof(fc.string(), fc.constantFrom(...marks)), text),
      summary: fc.dictionary(fc.oneof(fc.string(), fc.constantFrom(...marks)), text),
      steps: fc.array(step, { maxLength: 4 }),
      validations: fc.array(fc.record({ step: text, loss: text, accuracy: text }), { maxLength: 3 }),
      samples: fc.array(fc.record({ step: text, text }), { maxLength: 3 }),
    });
    const tags = (page: string) => [...page.matchAll(/<\/?([a-z][\w-]*)/gi)].map(([, name]) => name);
    const known = new Set([...tags(html), 'p', 'dl', 'dt', 'dd', 'div', 'h2', 'details', 'summary', 'pre', 'section']);
    await fc.assert(
      fc.asyncProperty(runs, async (hostile) => {
        const page = await renderReport(hostile);
        expect(tags(page).filter((name) => !known.has(name))).toEqual([]);
        expect(page).not.toMatch(/<[^>]* onload="/);
        expect(page.match(/<script/g)?.length).toBe(4);
      }),
      { numRuns: 60, seed: 1 },
    );
  });

  test('its scripts parse', () => {
    for (const [, script = ''] of html.matchAll(/<script>(.*?)<\/script>/gs))
      expect(() => new Function(script)).not.toThrow();
  });

  test('has the curves over one axis of steps; what is no number is a gap', () => {
    const { x, charts } = drawnBy(html);
    expect(x).toEqual(Array.from({ length: 401 }, (_, i) => i));
    expect(charts.map(({ title }) => title)).toEqual(['Loss', 'Speed', 'Learning rate', 'Gradient norm']);
    const [loss] = leading(1, charts);
    const [raw, smoothed, validation] = leading(3, loss.series);
    for (const { series } of charts) for (const { values } of series) expect(values.length).toBe(x.length);
    expect([raw.values[6], raw.values[7], raw.values[400]]).toEqual([4.44, null, null]);
    expect(smoothed.values[7]).toBe(null);
    expect([validation.values[0], validation.values[1], validation.values[400]]).toEqual([5, null, 1]);
  });

  test('the accuracy of validations is of what was told: labels, or problems of a task', async () => {
    const scored = { ...run, validations: [{ step: 400, loss: 1, accuracy: 0.75 }] };
    for (const [told, title, label] of [
      [undefined, 'Accuracy', 'of labels that are held back'],
      ['problems', 'Solved', 'of unseen problems'],
    ] as const) {
      const chart = drawnBy(await renderReport({ ...scored, ...(told && { told }) })).charts.at(-1);
      expect(chart).toMatchObject({ title, series: [{ label }] });
      expect(chart?.series[0]?.values.at(-1)).toBe(0.75);
    }
  });

  test('smoothing follows a falling line without lag and flattens its noise', () => {
    const [loss] = leading(1, drawnBy(html).charts);
    const [, { values: smoothed }] = leading(2, loss.series);
    // Eleven alternating values of +-0.5 leave at most 0.5 / 11 of noise.
    for (let step = 20; step < 395; step++) {
      expect(Math.abs((smoothed[step] ?? Number.NaN) - (5 - step / 100))).toBeLessThanOrEqual(0.5 / 11 + 1e-4);
    }
  });

  test('summary numbers are readable, settings are as they were given', () => {
    expect(html).toContain('<dd>0.0006</dd>');
    expect(html).toContain('<dd>1\u202f234\u202f567</dd>');
    expect(html).toContain('<dd>0.4689</dd>');
    expect(html).toContain('<dd>12345</dd>');
  });

  test('shows the last sample open and earlier ones folded', () => {
    expect(html.indexOf('<details open><summary>Step 400')).toBeGreaterThan(0);
    expect(html.indexOf('<details><summary>Step 10')).toBeGreaterThan(html.indexOf('<details open>'));
  });

  test('a run without a step is a page without curves', async () => {
    const page = await renderReport({ ...run, steps: [], validations: [], samples: [] });
    expect(page).not.toContain('<figure');
    expect(drawnBy(page)).toEqual({ x: [], charts: [] });
  });
});

describe('the template', () => {
  test('escapes what is no markup of its own, also what looks like it', () => {
    const inner = template`<b>${'<&>'}</b>`;
    expect(String(template`<p title="${'"\''}">${[inner, 1, '<i>']}</p>`)).toBe(
      '<p title="&quot;&#39;"><b>&lt;&amp;&gt;</b>1&lt;i&gt;</p>',
    );
    const forged = { text: '<i>', toString: () => '<i>' } as never;
    expect(String(template`<p>${forged}</p>`)).toBe('<p>&lt;i&gt;</p>');
    expect(String(dataOf('a', '</script><!--'))).toBe(
      '<script type="application/json" id="a">"\\u003c/script>\\u003c!--"</script>',
    );
  });

  test('refuses a value anywhere else', () => {
    const x = 'x';
    const wrong = [
      () => template`<p ${x}>`,
      () => template`<${x}>`,
      () => template`<p class=${x}>`,
      () => template`<p class='${x}'>`,
      () => template`<p style="${x}"></p>`,
      () => template`<p onclick="a(${x})"></p>`,
      () => template`<a href="${x}"></a>`,
      () => template`<iframe srcdoc="${x}"></iframe>`,
      () => template`<script>${x}</script>`,
      () => template`<style>${x}</style>`,
      () => template`<!-- ${x} -->`,
      () => template`<p class="a`,
    ];
    for (const make of wrong) expect(make).toThrow(/^internal: /);
  });
});
