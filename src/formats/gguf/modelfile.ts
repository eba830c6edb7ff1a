// An Ollama Modelfile for a GGUF file: where it is, how a chat is put into words, and what ends an answer. Templates are known by
// the marks in the model's own; of one that is not known Ollama reads the model's out of the file.

import { HoldfastError } from '../../util/errors.ts';
import { BYTE_VOCABULARY, type Vocabulary } from './vocabulary/vocabulary.ts';

interface ChatFormat {
  /** In the model's template, and in no other's. */
  readonly mark: string;
  /** In Go's language of templates: one turn of each. Up to the answer it is what the model's own writes, with no blank more. */
  readonly template: string;
  readonly stops: readonly string[];
}

const FORMATS: readonly ChatFormat[] = [
  {
    mark: '<|im_start|>',
    template: `{{ if .System }}<|im_start|>system
{{ .System }}<|im_end|>
{{ end }}{{ if .Prompt }}<|im_start|>user
{{ .Prompt }}<|im_end|>
{{ end }}<|im_start|>assistant
{{ .Response }}<|im_end|>
`,
    stops: ['<|im_start|>', '<|im_end|>'],
  },
  {
    mark: '<|start_header_id|>',
    template: `{{ if .System }}<|start_header_id|>system<|end_header_id|>

{{ .System }}<|eot_id|>{{ end }}{{ if .Prompt }}<|start_header_id|>user<|end_header_id|>

{{ .Prompt }}<|eot_id|>{{ end }}<|start_header_id|>assistant<|end_header_id|>

{{ .Response }}<|eot_id|>`,
    stops: ['<|start_header_id|>', '<|eot_id|>'],
  },
  {
    mark: '<start_of_turn>',
    template: `<start_of_turn>user
{{ if .System }}{{ .System }}

{{ end }}{{ .Prompt }}<end_of_turn>
<start_of_turn>model
{{ .Response }}<end_of_turn>
`,
    stops: ['<start_of_turn>', '<end_of_turn>'],
  },
  {
    mark: '<<SYS>>',
    template: `[INST] {{ if .System }}<<SYS>>
{{ .System }}
<</SYS>>

{{ end }}{{ .Prompt }} [/INST]{{ .Response }}</s>`,
    stops: ['[INST]', '[/INST]'],
  },
  {
    mark: '[INST]',
    template: `[INST] {{ if .System }}{{ .System }}

{{ end }}{{ .Prompt }} [/INST]{{ .Response }}</s>`,
    stops: ['[INST]', '[/INST]'],
  },
];

/**
 * `file`: its name, in the same folder. `endOfTurns`: what a chat template writes behind an answer, where that is known. Errors:
 * HoldfastError for a name that a Modelfile cannot have.
 */
export function modelfileOf(
  file: string,
  { chatTemplate, specials, tokens }: Vocabulary,
  endOfTurns: (chatTemplate: string) => string | undefined = () => undefined,
): string {
  if (/\p{Cc}/u.test(file))
    throw new HoldfastError(`${JSON.stringify(file)}: a Modelfile cannot name such a file; choose another`);
  // No byte ends an answer, the text behind it does.
  const ofBytes = tokens === BYTE_VOCABULARY.tokens;
  const end = ofBytes && chatTemplate !== undefined ? endOfTurns(chatTemplate) : undefined;
  const format = FORMATS.find(
    ({ mark, stops }) => chatTemplate?.includes(mark) && (!ofBytes || (end !== undefined && stops.includes(end))),
  );
  // A model that was not taught to chat goes on with what it is given.
  const template = chatTemplate === undefined ? '{{ .Prompt }}' : format?.template;
  const ends = ofBytes
    ? [end?.trim() ?? '']
    : [specials.eos, specials.eot].flatMap((id) => (id === undefined ? [] : [tokens[id]?.text ?? '']));
  // What cannot be quoted, or is no word of a text, ends an answer by its id anyway.
  const stops = [...new Set([...(format?.stops ?? []), ...(chatTemplate === undefined ? [] : ends)])].filter((stop) =>
    /^[^"\\\p{Cc}]+$/u.test(stop),
  );
  return [
    `FROM ./${file}`,
    ...(template === undefined ? [] : [`TEMPLATE """${template}"""`]),
    ...stops.map((stop) => `PARAMETER stop "${stop}"`),
    '',
  ].join('\n');
}
