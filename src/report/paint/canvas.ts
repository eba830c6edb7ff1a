// A canvas that is sharp on every screen: as many pixels as the screen has, drawn on in CSS pixels.

/** Makes a canvas ready to be drawn on: empty, with this size in CSS pixels. */
export function openCanvas(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d') as CanvasRenderingContext2D;
  context.scale(ratio, ratio);
  context.font = '12px system-ui, sans-serif';
  context.textBaseline = 'middle';
  return context;
}
