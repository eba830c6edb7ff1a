// Runs in the page: draws the chunk map of one step and, below it on the same axis, the GPU's memory; answers pointer
// and keyboard. The page holds its text, so it refers to nothing outside itself but what it is given.
//
// Colour says in which tier a chunk is, lightness and hatching what it is doing: either reads without the other, and
// without telling red from green. Colours are the page's variables, read when drawing.

import type { ChunkHistory } from '../engine/observe/chunk-codes.ts';

/** What the page holds for this. */
export interface PageMap {
  readonly history: ChunkHistory;
  readonly tiers: readonly string[];
  readonly states: readonly string[];
  /** How a tier, a state and a kind are called. */
  readonly words: Readonly<Record<string, string>>;
  /** Slots in use at each moment. */
  readonly used: readonly number[];
  /** Bytes. */
  readonly budget: number | null;
}

export function drawChunkMap(
  { history, tiers, states, words, used, budget }: PageMap,
  formatBytes: (bytes: number) => string,
): void {
  const { lists, tensors, chunks, phases, operators, labels, chunkBytes, slots, staging } = history;
  const find = <E extends Element>(selector: string) => document.querySelector(`.chunk-map ${selector}`) as E;
  const frame = find<HTMLElement>('.frame');
  const map = find<HTMLCanvasElement>('.tiers');
  const areas = find<HTMLCanvasElement>('.areas');
  const tip = find<HTMLElement>('.tip');
  const cross = find<HTMLElement>('.cross');
  const marked = find<HTMLElement>('.marked');
  const selected = find<HTMLElement>('.selected');
  const count = operators.length;
  const staged: number[] = [];
  for (let i = 0; i < history.staged.length; i += 2) {
    for (let n = history.staged[i + 1] ?? 0; n > 0; n--) staged.push(history.staged[i] ?? 0);
  }

  // ---- Geometry, in CSS pixels --------------------------------------------------------------------------

  const gutter = 88;
  const head = 22;
  const gap = 9;
  // Whole pixels, so that rows of one state look alike.
  const rowHeight = Math.min(10, Math.max(1, Math.round(420 / chunks.length)));
  const tops: number[] = [];
  let bottom = head;
  for (const list of lists) {
    for (let i = 0; i < list.chunks; i++) tops[list.first + i] = bottom + i * rowHeight;
    bottom += list.chunks * rowHeight + gap;
  }
  const mapHeight = bottom - gap + 1;
  const areaHeight = 150;
  const axisHeight = 26;
  let width = 0;
  /** The moments in view. */
  let view: [number, number] = [0, count];
  const x = (m: number) => gutter + ((m - view[0]) / (view[1] - view[0])) * (width - gutter);
  const momentAt = (px: number) => view[0] + ((px - gutter) / (width - gutter)) * (view[1] - view[0]);

  // ---- Colours ------------------------------------------------------------------------------------------

  const variable = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const channels = (hex: string) => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
  const mix = (a: string, b: string, share: number) => {
    const [from, to] = [channels(a), channels(b)];
    return `#${from
      .map((value, i) =>
        Math.round(value + ((to[i] ?? 0) - value) * share)
          .toString(16)
          .padStart(2, '0'),
      )
      .join('')}`;
  };

  /** How a chunk of each code is painted: a colour and, where rows are high enough, hatching over it. */
  const painter = (hatched: boolean) => {
    const paper = variable('--paper');
    const ink = variable('--ink');
    const ratio = window.devicePixelRatio;
    const hatch = (context: CanvasRenderingContext2D, ground: string, line: string, slope: number) => {
      const size = Math.round(6 * ratio);
      const tile = document.createElement('canvas');
      tile.width = tile.height = size;
      const on = tile.getContext('2d') as CanvasRenderingContext2D;
      on.fillStyle = ground;
      on.fillRect(0, 0, size, size);
      on.strokeStyle = line;
      on.lineWidth = ratio;
      for (const shift of [-size, 0, size]) {
        on.beginPath();
        on.moveTo(shift, slope > 0 ? size : 0);
        on.lineTo(shift + size, slope > 0 ? 0 : size);
        on.stroke();
      }
      return context.createPattern(tile, 'repeat') as CanvasPattern;
    };
    const known = new Map<number, string | CanvasPattern | null>();
    return (context: CanvasRenderingContext2D, code: number): string | CanvasPattern | null => {
      if (known.has(code)) return known.get(code) as string | CanvasPattern | null;
      const tier = tiers[Math.floor(code / states.length)] ?? 'none';
      const state = states[code % states.length];
      const base = tier === 'none' ? paper : variable(`--${tier}`);
      let fill: string | CanvasPattern | null = base;
      if (tier === 'none') fill = null;
      else if (state === 'COMPUTE') fill = mix(base, ink, 0.72);
      else if (state === 'FREE') fill = mix(base, paper, 0.82);
      else if (state !== 'HOLD') {
        const forward = state === 'HOLD_AFTER_FWD';
        const ground = mix(base, paper, forward ? 0.4 : 0.7);
        fill = hatched ? hatch(context, ground, mix(base, paper, forward ? 0.16 : 0.46), forward ? 1 : -1) : ground;
      }
      known.set(code, fill);
      return fill;
    };
  };

  // ---- Drawing ------------------------------------------------------------------------------------------

  const open = (canvas: HTMLCanvasElement, height: number): CanvasRenderingContext2D => {
    const ratio = window.devicePixelRatio;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext('2d') as CanvasRenderingContext2D;
    context.scale(ratio, ratio);
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    return context;
  };

  const inView = (context: CanvasRenderingContext2D, height: number, draw: () => void) => {
    context.save();
    context.beginPath();
    context.rect(gutter, 0, width - gutter, height);
    context.clip();
    draw();
    context.restore();
  };

  const drawPhases = (context: CanvasRenderingContext2D, height: number, named: boolean) => {
    let written = gutter;
    phases.forEach(({ name, first }, i) => {
      const from = Math.max(gutter, x(first));
      const to = Math.min(width, x(phases[i + 1]?.first ?? count));
      if (to <= gutter || from >= width) return;
      context.fillStyle = variable('--muted');
      const before = `${name} →`;
      if (named && to - from > context.measureText(name).width + 10) {
        context.textAlign = 'left';
        context.fillText(name, from + 6, head / 2 - 2);
        written = from + 6 + context.measureText(name).width;
      } else if (named && i === phases.length - 1 && from - context.measureText(before).width > written + 12) {
        // The last phase is short: its name stands before it.
        context.textAlign = 'right';
        context.fillText(before, from - 5, head / 2 - 2);
      }
      context.fillStyle = variable('--rule');
      if (x(first) >= gutter) context.fillRect(Math.round(from) - 0.5, 0, 1, height);
    });
  };

  const drawMap = () => {
    const context = open(map, mapHeight);
    const paint = painter(rowHeight >= 4);
    drawPhases(context, mapHeight, true);
    context.textAlign = 'left';
    for (const { kind, first, chunks: members } of lists) {
      context.fillStyle = variable('--ink');
      const middle = (tops[first] ?? 0) + (members * rowHeight) / 2;
      const name = words[kind] ?? kind;
      if (members * rowHeight >= 30) {
        context.fillText(name, 0, middle - 7);
        context.fillStyle = variable('--muted');
        context.fillText(`${members} chunk${members === 1 ? '' : 's'}`, 0, middle + 9);
      } else context.fillText(name, 0, middle);
    }
    inView(context, mapHeight, () => {
      const compute = states.indexOf('COMPUTE');
      // What is in use comes last, and at least a pixel wide: of many moments on one pixel it is the one to see.
      for (const using of [false, true]) {
        chunks.forEach((runs, chunk) => {
          const top = tops[chunk] ?? 0;
          let m = 0;
          for (let i = 0; i < runs.length; i += 2) {
            const [code, length] = [runs[i] ?? 0, runs[i + 1] ?? 0];
            const from = x(m);
            m += length;
            if ((code % states.length === compute) !== using || x(m) < gutter || from > width) continue;
            const fill = paint(context, code);
            if (!fill) continue;
            context.fillStyle = fill;
            context.fillRect(from, top, Math.max(using ? 1 : 0, x(m) - from), rowHeight);
          }
        });
      }
      if (rowHeight < 6) return;
      context.globalAlpha = 0.35;
      context.fillStyle = variable('--paper');
      for (const top of tops) context.fillRect(gutter, top + rowHeight - 1, width - gutter, 1);
    });
  };

  const drawAreas = () => {
    const context = open(areas, areaHeight + axisHeight);
    const { activationBytes, otherBytes } = history;
    const fixed = activationBytes + otherBytes;
    const peak = fixed + (slots + staging) * chunkBytes;
    const top = Math.max(peak, budget ?? 0) * 1.14;
    const y = (bytes: number) => areaHeight - (bytes / top) * (areaHeight - 4);
    // Round numbers of bytes, five at most.
    const power = 10 ** Math.ceil(Math.log10(top));
    const unit = power / ([50, 20, 10, 5].find((parts) => (top / power) * parts <= 5) ?? 5);
    context.textAlign = 'right';
    for (let bytes = 0; bytes <= top; bytes += unit) {
      context.fillStyle = variable('--rule');
      context.fillRect(gutter, Math.round(y(bytes)) - 0.5, width - gutter, 1);
      context.fillStyle = variable('--muted');
      const text = bytes === 0 ? '0' : formatBytes(bytes).replace(/\.0+ /, ' ');
      context.fillText(text, gutter - 10, Math.max(7, y(bytes)));
    }
    inView(context, areaHeight, () => {
      const layer = (color: string, low: (m: number) => number, high: (m: number) => number) => {
        context.fillStyle = color;
        context.beginPath();
        const first = Math.max(0, Math.floor(view[0]));
        const last = Math.min(count, Math.ceil(view[1]));
        for (let m = first; m < last; m++) {
          context.lineTo(x(m), y(high(m)));
          context.lineTo(x(m + 1), y(high(m)));
        }
        for (let m = last - 1; m >= first; m--) {
          context.lineTo(x(m + 1), y(low(m)));
          context.lineTo(x(m), y(low(m)));
        }
        context.fill();
      };
      const chunksTo = (m: number) => fixed + (used[m] ?? 0) * chunkBytes;
      const stagingTo = (m: number) => chunksTo(m) + (staged[m] ?? 0) * chunkBytes;
      layer(
        variable('--other'),
        () => 0,
        () => otherBytes,
      );
      layer(
        variable('--activations'),
        () => otherBytes,
        () => fixed,
      );
      layer(variable('--gpu'), () => fixed, chunksTo);
      layer(variable('--staging'), chunksTo, stagingTo);
      layer(variable('--unused'), stagingTo, () => peak);
    });
    drawPhases(context, areaHeight, false);
    context.textAlign = 'right';
    if (budget !== null) {
      context.fillStyle = variable('--ink');
      context.fillRect(gutter, Math.round(y(budget)) - 1, width - gutter, 1.5);
      const text = `budget ${formatBytes(budget)}`;
      context.fillText(text, width - 2, y(budget) - 9);
    }
    context.fillStyle = variable('--muted');
    context.fillText('moment', gutter - 10, areaHeight + 14);
    context.textAlign = 'center';
    const span = view[1] - view[0];
    let every = 10 ** Math.max(0, Math.floor(Math.log10(span / 6)));
    every *= span / every > 14 ? 5 : span / every > 7 ? 2 : 1;
    for (let m = Math.ceil(view[0] / every) * every; m < view[1]; m += every) {
      const half = context.measureText(String(m)).width / 2;
      if (x(m) + half <= width) context.fillText(String(m), x(m), areaHeight + 14);
    }
  };

  const draw = () => {
    drawMap();
    drawAreas();
    const paint = painter(true);
    for (const swatch of document.querySelectorAll<HTMLCanvasElement>('.chunk-map canvas.swatch')) {
      const ratio = window.devicePixelRatio;
      swatch.width = 22 * ratio;
      swatch.height = 12 * ratio;
      const context = swatch.getContext('2d') as CanvasRenderingContext2D;
      const fill = paint(context, Number(swatch.dataset['code']));
      if (!fill) continue;
      context.fillStyle = fill;
      context.fillRect(0, 0, swatch.width, swatch.height);
    }
  };

  // ---- Pointing -----------------------------------------------------------------------------------------

  /** A moment, and on the map a chunk. */
  interface Spot {
    m: number;
    chunk?: number;
  }
  let pointed: Spot | undefined;

  const codeAt = (chunk: number, m: number): number => {
    const runs = chunks[chunk] ?? [];
    let at = 0;
    for (let i = 0; i < runs.length; i += 2) {
      at += runs[i + 1] ?? 0;
      if (m < at) return runs[i] ?? 0;
    }
    return 0;
  };

  const line = (name: string, text: string) => {
    const row = document.createElement('div');
    row.className = name;
    row.textContent = text;
    return row;
  };

  const ofChunk = (chunk: number, m: number): HTMLElement[] => {
    const list = lists.find(({ first, chunks: members }) => chunk >= first && chunk < first + members);
    const code = codeAt(chunk, m);
    const tier = tiers[Math.floor(code / states.length)] ?? '';
    const state = states[code % states.length] ?? '';
    const where = tier === 'none' ? (state === 'FREE' ? 'nowhere' : 'all zeros, kept nowhere') : words[tier];
    const held = tensors[chunk] ?? [];
    const names = held.slice(0, 3).join('; ') + (held.length > 3 ? `; ${held.length - 3} more` : '');
    return [
      line('name', `${list?.kind} ${chunk - (list?.first ?? 0)}`),
      line('more', names),
      line('', `${where}: ${words[state]}`),
    ];
  };

  const ofMemory = (m: number): HTMLElement[] => {
    const inUse = ((used[m] ?? 0) + (staged[m] ?? 0)) * chunkBytes + history.activationBytes + history.otherBytes;
    return [line('name', `${formatBytes(inUse)} of GPU memory in use`)];
  };

  const point = (to: Spot | undefined) => {
    pointed = to;
    tip.hidden = cross.hidden = !to;
    marked.hidden = to?.chunk === undefined;
    if (!to) return;
    const { m, chunk } = to;
    const phase = phases.findLast(({ first }) => first <= m)?.name ?? '';
    tip.replaceChildren(
      ...(chunk === undefined ? ofMemory(m) : ofChunk(chunk, m)),
      line('', `${labels[operators[m] ?? 0]}`),
      line('more', `moment ${m}, ${phase}`),
      line('more', `${used[m]} of ${slots} slots, ${staged[m]} of ${staging} staging`),
    );
    const middle = x(m + 0.5);
    const top = chunk === undefined ? areas.offsetTop : (tops[chunk] ?? 0);
    cross.style.left = `${middle}px`;
    marked.style.top = `${top - 1}px`;
    marked.style.height = `${rowHeight + 2}px`;
    marked.style.left = `${gutter}px`;
    const flip = middle > width / 2;
    tip.style.left = flip ? '' : `${middle + 14}px`;
    tip.style.right = flip ? `${width - middle + 14}px` : '';
    tip.style.top = `${Math.max(0, top - 20)}px`;
  };

  const look = (from: number, to: number) => {
    const least = Math.min(count, 8);
    const span = Math.min(count, Math.max(least, to - from));
    const start = Math.min(Math.max(0, from), count - span);
    view = [start, start + span];
    draw();
    if (pointed && (pointed.m < view[0] || pointed.m >= view[1])) point(undefined);
    else point(pointed);
  };

  const rowAt = (py: number): number => {
    let best = 0;
    let distance = Number.POSITIVE_INFINITY;
    tops.forEach((top, chunk) => {
      const far = Math.abs(top + rowHeight / 2 - py);
      if (far < distance) [best, distance] = [chunk, far];
    });
    return best;
  };

  let dragged: number | undefined;
  const position = (event: PointerEvent) => {
    const box = frame.getBoundingClientRect();
    return { px: Math.max(gutter, event.clientX - box.left), py: event.clientY - box.top };
  };
  frame.addEventListener('pointermove', (event) => {
    const { px, py } = position(event);
    if (dragged !== undefined && Math.abs(px - dragged) > 4) {
      point(undefined);
      selected.hidden = false;
      selected.style.left = `${Math.min(px, dragged)}px`;
      selected.style.width = `${Math.abs(px - dragged)}px`;
      return;
    }
    const m = Math.min(Math.max(0, Math.floor(momentAt(px))), count - 1);
    point(py > mapHeight ? { m } : { m, chunk: rowAt(py) });
  });
  frame.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || event.pointerType === 'touch') return;
    dragged = position(event).px;
    frame.setPointerCapture(event.pointerId);
  });
  frame.addEventListener('pointerup', (event) => {
    const { px } = position(event);
    selected.hidden = true;
    if (dragged !== undefined && Math.abs(px - dragged) > 4) {
      const ends = [momentAt(dragged), momentAt(px)].sort((a, b) => a - b);
      look(ends[0] ?? 0, ends[1] ?? count);
    }
    dragged = undefined;
  });
  frame.addEventListener('pointerleave', () => point(undefined));
  frame.addEventListener('dblclick', () => look(0, count));
  frame.addEventListener('blur', () => point(undefined));
  frame.addEventListener('keydown', (event) => {
    const { m, chunk = 0 } = pointed ?? { m: Math.floor(view[0]) };
    const span = view[1] - view[0];
    const stride = event.shiftKey ? Math.max(1, Math.round(span / 20)) : 1;
    const go = (dm: number, dc: number) => {
      const to = Math.min(Math.max(0, m + dm), count - 1);
      if (to < view[0] || to >= view[1]) look(to - span / 2, to + span / 2);
      point({ m: to, chunk: Math.min(Math.max(0, chunk + dc), chunks.length - 1) });
    };
    const keys: Record<string, () => void> = {
      ArrowLeft: () => go(-stride, 0),
      ArrowRight: () => go(stride, 0),
      ArrowUp: () => go(0, -1),
      ArrowDown: () => go(0, 1),
      Home: () => go(-count, 0),
      End: () => go(count, 0),
      '+': () => look(m - span / 4, m + span / 4),
      '-': () => look(m - span, m + span),
      '0': () => look(0, count),
      Escape: () => point(undefined),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  new ResizeObserver(() => {
    width = frame.clientWidth;
    draw();
    point(undefined);
  }).observe(frame);
  for (const query of ['(prefers-color-scheme: dark)', 'print']) {
    matchMedia(query).addEventListener('change', draw);
  }
}
