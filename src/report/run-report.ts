// The report of a run: of one that is over, with all that it measured, or of what a run has saved so far. How it looks is
// report.ts's; when it is written is a matter of the command line and of the page's service.

import { preparationWords } from '../formats/preprocessor.ts';
import { STATE } from '../kernels/step-control.ts';
import { parameterCount } from '../nn/model.ts';
import { checkHost } from '../runtime/check-host.ts';
import { type Host, join } from '../runtime/host.ts';
import type { RunSummary } from '../train/run/run-events.ts';
import { modelOf, type RunSettings } from '../train/run/run-settings.ts';
import type { SavedState } from '../train/run/saved-state.ts';
import { at } from '../util/at.ts';
import { formatBytes } from '../util/bytes.ts';
import { check, number, object, text } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import { aliveWords } from './activation-words.ts';
import { renderReport } from './report.ts';

/** Where the report of a run lies, in the run's folder. */
export const REPORT_FILE = 'report.html';

/** Writes the report of a run that is over into its folder: for `over` of RunEvents. */
export async function writeReport(host: Host, out: string, summary: RunSummary, state: SavedState): Promise<void> {
  checkHost(host);
  check(text, out, 'the folder of the run');
  const count = number(wholeNumber(0));
  check(object({ parameters: count, activations: object({ arenas: count, alive: count }) }), summary, 'summary');
  check(object({ settings: object({}), history: object({}), corpus: object({}) }), state, 'state');
  await host.files.writeAtomic(join(out, REPORT_FILE), await runReport(host, state, summary));
}

/** The page. Without `summary`, figures are those that the state has. */
export async function runReport(host: Host, state: SavedState, summary?: RunSummary): Promise<string> {
  const {
    config,
    from,
    lora,
    data,
    task,
    records,
    images,
    tokenizer: _,
    keepBest,
    newHead,
    markedWindows,
    ...numbers
  } = state.settings;
  const { memory, ranks, figures } = summary ? shown(summary) : { figures: figuresOf(state) };
  return renderReport({
    title: `${config.model_type}, ${figures.parameters.toLocaleString('en')} parameters`,
    settings: {
      ...numbers,
      corpus: `${corpusName(state.settings)} (${state.corpus.bytes} bytes)`,
      ...(from ? { from } : {}),
      ...(records && { trainOn: records.trainOn, pack: records.pack }),
      ...(records?.template && { chatTemplate: records.template.name }),
      ...(lora ? { lora: `rank ${lora.rank}, alpha ${lora.alpha}, ${lora.targets.join(', ')}` } : {}),
      ...(images ? { images: preparationWords(images) } : {}),
      ...(keepBest ? { keepBest: 'yes' } : {}),
      ...(newHead ? { newHead: 'yes' } : {}),
      ...(markedWindows ? { markedWindows: 'yes' } : {}),
      runtime: host.name,
    },
    summary: called(worded(figures, state.history.validations.length > 0)),
    told: task === undefined ? 'labels' : 'problems',
    ...state.history,
    ...(memory && { memory }),
    ...(ranks && { ranks }),
  });
}

/** What figures are called where that is not their name in a summary. */
const FIGURES: Readonly<Record<string, string>> = {
  ...{ finalLoss: 'final loss', validationLoss: 'validation loss', validationStep: 'validated after step' },
  ...{ bestValidation: 'best validation' },
  ...{ tokensPerSecond: 'tokens/s', peakGpuBytes: 'peak GPU memory', skippedSteps: 'skipped steps' },
};

const called = <T>(figures: Readonly<Record<string, T>>): Record<string, T> =>
  Object.fromEntries(Object.entries(figures).map(([name, value]) => [FIGURES[name] ?? name, value]));

/** What is no number is said in words: the last step was skipped, or nothing was validated yet. */
function worded<T extends { finalLoss: number; validationLoss: number }>(figures: T, validated: boolean) {
  const { finalLoss, validationLoss, ...rest } = figures;
  return {
    ...(Number.isFinite(finalLoss) ? { finalLoss } : { finalLoss: 'not finite: the last step was skipped' }),
    ...(Number.isFinite(validationLoss) ? { validationLoss } : validated ? { validationLoss: 'not finite' } : {}),
    ...rest,
  };
}

function corpusName({ task, data }: RunSettings): string {
  if (task !== undefined) return `generated: ${task}`;
  return data.length > 0 ? data.join(', ') : 'TypeScript declarations';
}

function shown({
  checkpoint: _,
  interrupted: __,
  stopped: ___,
  best,
  activations,
  memory,
  ranks,
  peakGpuBytes,
  validationStep,
  ...rest
}: RunSummary) {
  const bestValidation = best && `${best.loss.toFixed(4)} after step ${best.step}`;
  const figures = {
    ...rest,
    ...earlier(validationStep, rest.steps),
    peakGpuBytes: formatBytes(peakGpuBytes),
    activations: `${formatBytes(activations.arenas)} (${aliveWords(activations)})`,
    ...(bestValidation !== undefined && { bestValidation }),
  };
  return { memory, ranks, figures };
}

/** When the last validation was, where that is not the end. */
const earlier = (validationStep: number | undefined, steps: number) =>
  validationStep !== undefined && validationStep !== steps && { validationStep };

function figuresOf({ settings, trainer, adapter, history: { steps, validations } }: SavedState) {
  const { accuracy, step } = validations.at(-1) ?? {};
  const seconds = steps.reduce((sum, { tokensPerSecond }) => sum + 1 / tokensPerSecond, 0);
  return {
    steps: trainer.step,
    finalLoss: steps.at(-1)?.loss ?? Number.NaN,
    validationLoss: validations.at(-1)?.loss ?? Number.NaN,
    ...earlier(step, trainer.step),
    ...(accuracy !== undefined && { accuracy }),
    ...(steps.length > 0 && { tokensPerSecond: steps.length / seconds }),
    parameters: parameterCount(modelOf(settings)),
    skippedSteps: at(trainer.control, STATE.skipped),
    adapter,
  };
}
