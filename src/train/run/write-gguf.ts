// The model in a folder as a GGUF file, by a call: a run's, a checkpoint's, or an adapter's made a part of its base. What the file
// holds is formats/gguf/export.ts; `holdfast export --gguf` and a page say more of what they write.

import { templateRunner } from '../../data/records/template-runner.ts';
import { exportGGUF, type GGUFSummary } from '../../formats/gguf/export.ts';
import { TENSOR_TYPE_NAMES, type TensorType } from '../../formats/gguf/tensor-types.ts';
import type { Files } from '../../runtime/host.ts';
import { abortSignal } from '../../util/arguments.ts';
import { check, closed, oneOf, optional, text, truth } from '../../util/json.ts';
import { byteTemplateIn, mergedModel, withModel } from './open-model.ts';

/** How a GGUF file is written. */
export interface GGUFWriting {
  /** Of matrices. @default 'F16' */
  readonly type?: TensorType;
  /** Whether an Ollama Modelfile is written beside it. @default false */
  readonly modelfile?: boolean;
  /** The folder of an adapter's base. @default the one that it names */
  readonly base?: string | undefined;
  /** Ends the writing, with nothing left of it. @default nothing does */
  readonly signal?: AbortSignal | undefined;
}

const writing = closed<GGUFWriting>({
  type: optional(oneOf(TENSOR_TYPE_NAMES)),
  modelfile: optional(truth),
  base: optional(text),
  signal: optional(abortSignal),
});

/**
 * Writes the model in `folder`, a run's, a checkpoint's or another one's, as the file `out`, for llama.cpp and Ollama; an adapter is
 * made a part of its base. Errors: HoldfastError for a folder without a model, for one that no GGUF file holds, and where `out`
 * is there already; nothing is left of it then.
 */
export async function writeGGUF(
  files: Files,
  folder: string,
  out: string,
  options: GGUFWriting = {},
): Promise<GGUFSummary> {
  check(text, out, 'the file to write');
  check(writing, options, 'the options of a GGUF file');
  const { type = 'F16', modelfile = false, base, signal } = options;
  return withModel(files, folder, { base }, async (opened) => {
    const chatTemplate = await byteTemplateIn(files, folder);
    const model = { name: folder, ...(await mergedModel(opened)), ...opened.found, chatTemplate };
    const interrupted = () => signal?.aborted ?? false;
    return exportGGUF(files, out, model, { type, modelfile, templates: templateRunner, interrupted });
  });
}
