// Every export of `holdfast/browser` that needs no page, called with wrong values (wrong-arguments.ts). The trainer's methods are
// called so in a browser.

import { expect, test } from 'vitest';
import * as library from '../../src/browser/index.ts';
import { type Call, mistakesOf } from '../wrong-arguments.ts';

const { drawing } = library;
const file = new File(['text'], 'text.txt');
const pixels = { width: 1, height: 1, data: new Uint8ClampedArray(4) };
const config = library.configOfShape({ ...library.DEFAULT_SHAPE, family: 'gpt2' });

const CALLS: Readonly<Record<string, Call>> = {
  HoldfastError: { args: ['message'], call: (message) => new library.HoldfastError(message) },
  activationCode: { args: ['kept', true], call: library.activationCode },
  configOfShape: { args: [{ ...library.DEFAULT_SHAPE, family: 'gpt2' }, 'shape'], call: library.configOfShape },
  decode: { args: [1], call: library.decode },
  defaultSettings: { args: [{ config, lr: 1, batch: 2 }], call: library.defaultSettings },
  encodeState: { args: ['gpu', 'HOLD'], call: library.encodeState },
  expand: { args: [[1, 2]], call: library.expand },
  filesToTrain: { args: [[{ path: 'a/train.jsonl', file }]], call: library.filesToTrain },
  'filesToTrain, file': { args: [{ path: 'a/train.jsonl', file }], call: (given) => library.filesToTrain([given]) },
  unreadForm: { args: [file], call: library.unreadForm },
  unreadRecords: { args: [[file]], call: library.unreadRecords },
  fineTuningSettings: { args: [config], call: library.fineTuningSettings },
  formatBytes: { args: [1e6], call: library.formatBytes },
  imageFile: { args: ['cat/1.png', { ...pixels }], call: library.imageFile },
  isBase: { args: [{ settings: undefined, savedStep: 1, status: 'imported' }], call: library.isBase },
  messageOf: { args: [new Error('message')], call: library.messageOf },
  openHoldfast: { args: [{ onEvents: undefined, worker: undefined }], call: library.openHoldfast },
  parseBytes: { args: ['1MB'], call: library.parseBytes },
  parseConfig: { args: [{ ...config }, 'here'], call: library.parseConfig },
  rowsOf: { args: [{ chunks: [[1, 2]], activations: { tensors: [], codes: [], working: [] } }], call: library.rowsOf },
  labelsIn: { args: [{ ...config }], call: library.labelsIn },
  shapeOf: { args: [{ ...config }], call: library.shapeOf },
};

/** No calls: data, and the parts of a picture. */
const DATA = [
  ...[
    'ACTIVATION_STATES',
    'ALL_LINEAR',
    'CODES',
    'DEFAULT_SHAPE',
    'FAMILIES',
    'FAMILY_NAMES',
    'STATES',
    'TASKS',
    'TIERS',
  ],
  'drawing',
];

test('a wrong argument is refused in one line, or taken', async () => {
  const named = new Set(Object.keys(CALLS).map((name) => name.replace(/[.,].*$/, '')));
  expect(Object.keys(library).filter((name) => !named.has(name) && !DATA.includes(name))).toEqual([]);
  expect(drawing).toBeDefined();
  expect(await mistakesOf(CALLS)).toEqual([]);
});
