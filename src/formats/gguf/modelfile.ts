// An Ollama Modelfile for a GGUF file: where it is, how a chat is put into words, and what ends an answer. Its template is said
// where it writes what the model's own does (ollama-template.ts); where it is not, Ollama is left to the model's own.

import { HoldfastError } from '../../util/errors.ts';
import { ollamaTemplateOf, type TemplateRunner } from './ollama-template.ts';
import { BYTE_VOCABULARY, type Vocabulary } from './vocabulary/vocabulary.ts';

/** What a Modelfile says. */
export interface Modelfile {
  readonly text: string;
  /** For people, a line each: what of the model's own template it does not say. */
  readonly notes: readonly string[];
}

/** What begins a turn, in the templates that there are: an answer has ended there, whatever the model goes on with. */
const TURN_MARKS = ['<|im_start|>', '<|start_header_id|>', '<start_of_turn>', '[INST]', '[/INST]'];

/** Whether a text can be a stop: it can be quoted, and is more than ends of lines. */
const isStop = (text: string): boolean => /^[^"\\\p{Cc}]+$/u.test(text);

/** `file`: its name, in the same folder. Errors: HoldfastError for a name that a Modelfile cannot have. */
export function modelfileOf(
  file: string,
  { chatTemplate, specials, tokens }: Vocabulary,
  runner: TemplateRunner | undefined,
): Modelfile {
  if (/\p{Cc}/u.test(file))
    throw new HoldfastError(`${JSON.stringify(file)}: a Modelfile cannot name such a file; choose another`);
  const lines = [`FROM ./${file}`];
  const notes: string[] = [];
  // A model that was not taught to chat goes on with what it is given.
  if (chatTemplate === undefined) return { text: `${lines}\nTEMPLATE """{{ .Prompt }}"""\n`, notes };
  // No byte ends an answer, the text behind it does.
  const ofBytes = tokens === BYTE_VOCABULARY.tokens;
  const textOf = (id: number | undefined): string => (id === undefined || ofBytes ? '' : (tokens[id]?.text ?? ''));
  const [bos = '', eos = '', eot = ''] = [specials.bos, specials.eos, specials.eot].map(textOf);
  const own = { text: chatTemplate, bos, eos };
  const end = runner?.turnEnd(own)?.trim() ?? '';
  const found = !runner
    ? { differs: 'it was not run' }
    : ofBytes && !isStop(end)
      ? { differs: 'no text ends its answers' }
      : ollamaTemplateOf({ ...own, addsBos: specials.addBos }, runner);
  if ('differs' in found)
    notes.push(
      `the Modelfile has no TEMPLATE, as none writes what the model’s chat template does: ${found.differs}; Ollama 0.30 and later runs the model’s own, or a built-in one that is much like it`,
    );
  else {
    lines.push(`TEMPLATE """${found.template}"""`);
    if (found.system !== undefined) lines.push(`SYSTEM """${found.system}"""`);
    if (!found.takesSystem)
      notes.push('the Modelfile’s TEMPLATE leaves system messages out, as the model’s chat template takes none');
  }
  const marks = TURN_MARKS.filter((mark) => chatTemplate.includes(mark));
  const stops = new Set([...marks, end, eos, eot].filter(isStop));
  return { text: [...lines, ...[...stops].map((stop) => `PARAMETER stop "${stop}"`), ''].join('\n'), notes };
}
