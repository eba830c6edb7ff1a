// Ollama's template of a model that chats, in Go's language of templates: learned from what the model's own chat template, in
// Jinja, writes around marks in place of what is said, with a system message and without, in one turn and several.
//
// Invariant: a template that is given writes all of these conversations as the model's own does, character for character; of a model
// for which there is none, the difference is said.

/** A message that a chat template is tried with. */
export interface TriedMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

/** A chat template in Jinja, and what it is run with. */
export interface OwnTemplate {
  readonly text: string;
  /** The token in front of a text, and the one behind it. */
  readonly bos: string;
  readonly eos: string;
  /** What it takes for today: YYYY-MM-DD. */
  readonly date: string;
}

/** Runs chat templates in Jinja. */
export interface TemplateRunner {
  /** What a template writes behind an answer; undefined where it is not known. */
  turnEnd(template: Omit<OwnTemplate, 'date'>): string | undefined;
  /** The text of a conversation, up to an answer to come if that is asked for; undefined where the template refuses it. */
  write(template: OwnTemplate, messages: readonly TriedMessage[], addGenerationPrompt: boolean): string | undefined;
}

type Write = (messages: readonly TriedMessage[], addGenerationPrompt?: boolean) => string | undefined;

/** A model's own, on any day; `addsBos`: the tokenizer puts `bos` in front of a text, as Ollama does then. */
type OwnTemplates = Omit<OwnTemplate, 'date'> & { readonly addsBos: boolean };

/** A template of Ollama's, and what belongs to it. */
export interface OllamaTemplate {
  readonly template: string;
  /** The system message that the model's own writes where a conversation has none. */
  readonly system?: string;
  /** Whether a conversation may have a system message: one that the model's own refuses or leaves out is left out. */
  readonly takesSystem: boolean;
}

/** What is written in front of something and behind it. */
type Around = readonly [before: string, behind: string];

/** What a template writes around what is said. */
interface Format {
  /** In front of all, where there is no system message. */
  readonly head: string;
  readonly system?: Around;
  /** Where the system message is: instead of the head, or in front of what the user says first, or last. */
  readonly systemIn: 'head' | 'first' | 'last';
  readonly defaultSystem?: string;
  readonly user: Around;
  readonly assistant: Around;
  /** In front of an answer to come, where it is not what is in front of those that were given. */
  readonly end: string;
}

/** What no template of Ollama's says as the model's own does. */
class Differs extends Error {}

const [OPEN, CLOSE] = ['\ue000', '\ue001'];
const marked = (role: TriedMessage['role'], name: string): TriedMessage => ({ role, content: OPEN + name + CLOSE });
const SYSTEM = marked('system', 'system');
const TURNS = [1, 2, 3].flatMap((i) => [marked('user', `question ${i}`), marked('assistant', `answer ${i}`)]);
/** Conversations up to an answer to come. */
const UP_TO_ANSWERS = [1, 3, 5].map((length) => TURNS.slice(0, length));
const DATES = ['2001-02-03', '2012-11-10'] as const;

/** The template, or in a few words how the model's own differs from all that can be said in one. */
export function ollamaTemplateOf(
  own: OwnTemplates,
  runner: TemplateRunner,
): OllamaTemplate | { readonly differs: string } {
  try {
    const write = writerOf(own, runner);
    const takesSystem = partsOf(write([SYSTEM, ...TURNS.slice(0, 1)]), 2) !== undefined;
    const format = learned(write, takesSystem);
    for (const turns of UP_TO_ANSWERS)
      for (const messages of takesSystem ? [turns, [SYSTEM, ...turns]] : [turns])
        compare(write(messages), written(format, messages));
    const { defaultSystem } = format;
    const template = goTemplate(format);
    for (const text of [template, defaultSystem ?? '']) checkQuotable(text);
    return { template, takesSystem, ...(defaultSystem !== undefined && { system: defaultSystem }) };
  } catch (error) {
    if (error instanceof Differs) return { differs: error.message };
    throw error;
  }
}

/** Without the token that Ollama puts in front. Errors: Differs for a template that writes another text every day. */
function writerOf({ addsBos, ...own }: OwnTemplates, runner: TemplateRunner): Write {
  return (messages, addGenerationPrompt = true) => {
    const [one, other] = DATES.map((date) => runner.write({ ...own, date }, messages, addGenerationPrompt));
    if (one !== other) throw new Differs('it writes the date of the day');
    return addsBos && one?.startsWith(own.bos) ? one.slice(own.bos.length) : one;
  };
}

/** The texts between so many marks, with these; undefined where some mark is missing, or there twice. */
function partsOf(
  text: string | undefined,
  count: number,
): { readonly parts: string[]; readonly names: string[] } | undefined {
  const all = text?.split(new RegExp(`${OPEN}([^${CLOSE}]*)${CLOSE}`)) ?? [];
  const names = all.filter((_, i) => i % 2 === 1);
  if (names.length !== count || new Set(names).size !== count) return undefined;
  return { parts: all.filter((_, i) => i % 2 === 0), names };
}

function learned(write: Write, takesSystem: boolean): Format {
  const between = (messages: readonly TriedMessage[], addGenerationPrompt = true): string[] => {
    const found = partsOf(write(messages, addGenerationPrompt), messages.length);
    if (found) return found.parts;
    throw new Differs('it refuses a conversation of questions and answers, or leaves some of it out');
  };
  const [whole = '', ask = ''] = between(TURNS.slice(0, 1));
  const [, answer = '', next = ''] = between(TURNS.slice(0, 3));
  const [, , ending = ''] = between(TURNS.slice(0, 2), false);
  const asks = sharedStart(ask, answer);
  // A question begins as the first one does, but not with the end of the answer before it.
  const shared = sharedEnd(whole, next);
  const question =
    next.startsWith(ending) && ending.length + shared.length > next.length ? next.slice(ending.length) : shared;
  const head = whole.slice(0, whole.length - question.length);
  const format: Format = {
    ...{ head, systemIn: 'head' },
    user: [question, asks],
    assistant: [answer.slice(asks.length), next.slice(0, next.length - question.length)],
    end: ask.slice(asks.length),
  };
  if (!takesSystem) return format;
  const [before = '', behind = ''] = between([SYSTEM, ...TURNS.slice(0, 1)]);
  if (behind.endsWith(question)) {
    const system = [before, behind.slice(0, behind.length - question.length)] as const;
    const own = whole.slice(before.length, whole.length - behind.length);
    const isDefault = own !== '' && whole === before + own + behind;
    return isDefault ? { ...format, head: '', system, defaultSystem: own } : { ...format, system };
  }
  const several = partsOf(write([SYSTEM, ...TURNS.slice(0, 3)]), 4);
  const systemIn = several?.names[0] === 'system' ? 'first' : 'last';
  return { ...format, systemIn, system: [before.slice(whole.length), behind] };
}

/** The beginning that two texts share. */
function sharedStart(one: string, other: string): string {
  let length = 0;
  while (length < one.length && one[length] === other[length]) length++;
  return one.slice(0, length);
}

/** The end that two texts share. */
function sharedEnd(one: string, other: string): string {
  let length = 0;
  while (length < one.length && one.at(-1 - length) === other.at(-1 - length)) length++;
  return one.slice(one.length - length);
}

/** What the template of a format writes. */
function written(format: Format, messages: readonly TriedMessage[]): string {
  const { head, system, systemIn, defaultSystem, user, assistant, end } = format;
  const said = messages.find(({ role }) => role === 'system')?.content ?? defaultSystem;
  const ofSystem = system && said !== undefined ? around(system, said) : undefined;
  const turns = messages.filter(({ role }) => role !== 'system');
  const place = systemIn === 'last' ? turns.length - 1 : 0;
  const texts = turns.map(({ role, content }, i) =>
    role === 'assistant'
      ? around(assistant, content)
      : around(user, systemIn !== 'head' && i === place ? (ofSystem ?? '') + content : content),
  );
  return [(systemIn === 'head' ? ofSystem : undefined) ?? head, ...texts, end].join('');
}

const around = ([before, behind]: Around, text: string): string => before + text + behind;

/** Characters of a difference that are shown. */
const SHOWN = 24;

function compare(own: string | undefined, made: string): void {
  if (own === made) return;
  const shown = (text = '') => JSON.stringify(text.slice(at, at + SHOWN).replace(/[\ue000\ue001]/g, ''));
  const at = sharedStart(own ?? '', made).length;
  throw new Differs(`it writes ${shown(own)} where one of Ollama’s writes ${shown(made)}`);
}

/** Errors: Differs for what a Modelfile cannot have between its quotes: it reads printable characters, spaces and ends of lines. */
function checkQuotable(text: string): void {
  const [other] = /"""|[^\P{C}\n\t]|[^\P{Z} ]/u.exec(text) ?? [];
  if (other !== undefined) throw new Differs(`it writes ${JSON.stringify(other)}, which a Modelfile cannot have`);
}

// ---- In Go's language -------------------------------------------------------------------------------------------

/** A text as it is: what begins an action is one. */
const plain = (text: string): string => text.replace(/\{\{+|\{$/g, (braces) => `{{ "${braces}" }}`);

function goTemplate({ head, system, systemIn, user, assistant, end }: Format): string {
  const put = ([before, behind]: Around, field: string) => `${plain(before)}{{ ${field} }}${plain(behind)}`;
  // Where it stands instead of nothing, it is a message like others.
  const isMessage = system && systemIn === 'head' && head === '';
  const inHead = system && systemIn === 'head' && !isMessage ? put(system, '.System') : undefined;
  const before =
    inHead === undefined || system?.join('') === head
      ? (inHead ?? plain(head))
      : `{{ if .System }}${inHead}{{ else }}${plain(head)}{{ end }}`;
  // The first message is then the system's.
  const isPlace = systemIn === 'first' ? 'eq $i 1' : 'eq (len (slice $.Messages $i)) 1';
  const inTurn =
    system && systemIn !== 'head' ? `{{ if and $.System (${isPlace}) }}${put(system, '$.System')}{{ end }}` : '';
  const question = `${plain(user[0])}${inTurn}{{ .Content }}${plain(user[1])}`;
  const roles = [
    ...(isMessage ? [['system', put(system, '.Content')] as const] : []),
    ['user', question] as const,
    ['assistant', put(assistant, '.Content')] as const,
  ];
  const branches = roles.map(([role, text], i) => `{{ ${i === 0 ? '' : 'else '}if eq .Role "${role}" }}${text}`);
  const range = inTurn === '' ? 'range .Messages' : 'range $i, $_ := .Messages';
  return `${before}{{ ${range} }}${branches.join('')}{{ end }}{{ end }}${plain(end)}`;
}
