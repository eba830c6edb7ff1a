// The lines that end a run on the command line: how far it came, its losses and memory, what would have made it faster,
// and what to do with it next.

import { isSynthetic } from '../../data/synthetic.ts';
import { taskOf } from '../../data/tasks.ts';
import { familyOf, labelsIn, type ModelConfig, shapeOf } from '../../formats/families/index.ts';
import { aliveWords, movedWords } from '../../report/activation-words.ts';
import { advice } from '../../report/advice.ts';
import { rankLines } from '../../report/rank-words.ts';
import { REPORT_FILE } from '../../report/run-report.ts';
import { join } from '../../runtime/host.ts';
import type { MemoryRecord } from '../../train/run/memory-record.ts';
import type { RunSummary } from '../../train/run/run-events.ts';
import type { RunSettings } from '../../train/run/run-settings.ts';
import { formatBytes } from '../../util/bytes.ts';
import { counted } from '../../util/counted.ts';
import { describeOrder } from '../accumulate-order.ts';
import { argument } from '../options.ts';
import { accuracyText } from '../progress.ts';

/** Whether the weights of a run that was not cut short are of no use. */
export const hasDiverged = ({ interrupted, validationLoss }: RunSummary): boolean =>
  !interrupted && !Number.isFinite(validationLoss);

/** `goOn`: the command that goes on with the run. */
export function describeRun(summary: RunSummary, out: string, settings: RunSettings, goOn: string): string[] {
  const { config, task, seed, records, data } = settings;
  const prompt = task ? taskOf(task).unseen(seed, 1)[0]?.prompt : data.length === 0 ? 'interface ' : undefined;
  const asked = prompt === undefined ? '' : ` --prompt "${prompt}"`;
  const { best, activations } = summary;
  const isCut = summary.interrupted || (!summary.stopped && summary.steps < settings.steps);
  const diverged = hasDiverged(summary);
  // A run stopped before its first validation has none.
  const { validationLoss, validationStep = summary.steps } = summary;
  // One that was ended between two has that of before.
  const when = validationStep === summary.steps ? '' : ` (after step ${validationStep})`;
  const validated = Number.isFinite(validationLoss) ? `, validation ${validationLoss.toFixed(4)}${when}` : '';
  // A run that was at its end takes no step.
  const { tokensPerSecond } = summary;
  const speed = tokensPerSecond > 0 ? `${Math.round(tokensPerSecond).toLocaleString('en')} tokens/s, ` : '';
  return [
    `${endOf(summary)} after ${counted(summary.steps, 'step')} on ${summary.adapter}${summary.stopped ? ', early: validations do not get better' : ''}`,
    ...(summary.steps === 0 ? [] : [lossLine(summary, config, validated)]),
    ...(summary.accuracy === undefined ? [] : [`${accuracyText(summary.accuracy, settings)}${when}`]),
    `${speed}${summary.parameters.toLocaleString('en')} parameters, ${formatBytes(summary.peakGpuBytes)} of GPU memory, ${formatBytes(activations.arenas)} of it for activations (${aliveWords(activations)})`,
    ...(summary.memory ? memoryLines(summary.memory) : []),
    ...(summary.ranks ? rankLines(summary.ranks) : []),
    ...(summary.skippedSteps > 0
      ? [`${counted(summary.skippedSteps, 'step')} skipped: their loss or gradient was not finite`]
      : []),
    `checkpoint ${summary.checkpoint}, curves ${join(out, REPORT_FILE)}`,
    ...(best ? [`best validation ${best.loss.toFixed(4)} after step ${best.step}: ${best.checkpoint}`] : []),
    ...(isCut && !diverged ? [`go on:   ${goOn}`] : []),
    ...(!summary.interrupted && !diverged && familyOf(config).writes && !isSynthetic(data)
      ? [`write:   holdfast generate ${argument(best?.checkpoint ?? out)}${records?.template ? ' --chat' : asked}`]
      : []),
    ...(!summary.interrupted && !diverged && unitOf(config) === 'text'
      ? [`tell:    holdfast generate ${argument(best?.checkpoint ?? out)} --prompt "a text"`]
      : []),
  ];
}

function endOf(summary: RunSummary): string {
  if (hasDiverged(summary)) return 'diverged';
  return summary.interrupted ? 'stopped' : 'done';
}

const lossLine = ({ finalLoss }: RunSummary, config: ModelConfig, validated: string): string =>
  Number.isFinite(finalLoss)
    ? `loss ${finalLoss.toFixed(4)}${validated} nats per ${unitOf(config)}`
    : `the last step was skipped: its loss or gradient is not finite, and the checkpoint is of before it; lower --lr or --clip${validated}`;

/** What a loss is the mean over. */
function unitOf(config: ModelConfig): string {
  if (shapeOf(config).vocabulary === 0) return 'image';
  return labelsIn(config) ? 'text' : 'token';
}

function memoryLines(record: MemoryRecord): string[] {
  const { gpu, host, disk, bytesPerStep, offloadedPerStep, fetchedPerStep, ...rest } = record;
  const { recoveryBytesPerStep, bound, fit, accumulate, total } = rest;
  // Where no step was recorded there is the whole run to tell of.
  const { h2d, d2h, diskRead, diskWrite } = bytesPerStep ?? total;
  const disks = disk.peak > 0 ? `, ${formatBytes(disk.peak)} of disk` : '';
  const io = diskRead + diskWrite > 0 ? `, disk ${formatBytes(diskRead)} read, ${formatBytes(diskWrite)} written` : '';
  const kept = recoveryBytesPerStep > 0 ? ` (${formatBytes(recoveryBytesPerStep)} of it for recovery)` : '';
  const activations =
    bytesPerStep && offloadedPerStep > 0 ? `, and ${movedWords({ down: offloadedPerStep, up: fetchedPerStep })}` : '';
  const least = bound ? `; the plan moves ${bound.ratio.toFixed(3)} x the least of any` : '';
  return [
    `${fit.slots} of ${counted(fit.chunks, 'chunk')} of ${formatBytes(fit.chunkBytes)} on the GPU at once: ${formatBytes(gpu.peak)} there, ${formatBytes(host.peak)} of host memory${disks}`,
    `${bytesPerStep ? 'a step' : 'the run'} moved ${formatBytes(h2d)} up, ${formatBytes(d2h)} down${kept}${activations}${io}${least}`,
    ...(accumulate ? [describeOrder(accumulate.order, accumulate.seconds)] : []),
    ...advice(record),
  ];
}
