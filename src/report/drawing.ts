// `drawing` of `holdfast/browser`: what the report and a page that shows runs draw and say alike, so that a step looks the
// same in both. The parts of a picture, not a picture: a report's is page/, the demo's is its own.

export { movedWords } from './activation-words.ts';
export {
  activationName,
  activationShares,
  contentsOf,
  kindOf,
  operatorAt,
  phaseAt,
  slotsText,
  WORDS,
} from './chunk-words.ts';
export { mendLanguage } from './language.ts';
export { openCanvas } from './paint/canvas.ts';
export { type Color, type Colors, channels, colorOf, mix, readColors, shadeOf } from './paint/colors.ts';
export {
  type MemoryArea,
  type MemoryLayers,
  type MomentAxis,
  memoryLayers,
  type PhaseLook,
  paintMemory,
  paintPhases,
} from './paint/step.ts';
export { type Column, smooth } from './smooth.ts';
