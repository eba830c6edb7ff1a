// Search for a chat template: by name, from a file, from beside a tokenizer, or out of a model's folder or zip as
// Hugging Face's models keep it. Not what is done with it (chat-template.ts).

import { readerOf } from '../../formats/archive.ts';
import { CHAT_TEMPLATE, modelFolder } from '../../formats/checkpoint/folder.ts';
import { opening } from '../../formats/checkpoint/opening.ts';
import type { TokenizerFiles } from '../../formats/tokenizer-files.ts';
import { checkFiles } from '../../runtime/check-host.ts';
import { type FolderReader, join } from '../../runtime/host.ts';
import { MOST_SETTINGS_BYTES, readWhole } from '../../runtime/read-whole.ts';
import { mapByName } from '../../util/arguments.ts';
import { HoldfastError } from '../../util/errors.ts';
import { check, closed, isObject, list, object, optional, parseJSON, show, text } from '../../util/json.ts';
import { BUILT_IN_TEMPLATES, type ChatTemplate } from './chat-template.ts';

const CONFIG_FILE = 'tokenizer_config.json';
const MARKS_FILE = 'special_tokens_map.json';
const namedTemplates = list(object({ name: text, template: text }));

type Contents = TokenizerFiles['contents'];
type Found = Pick<ChatTemplate, 'text' | 'bos' | 'eos'>;

/** Where a chat template may come from. */
export interface TemplateSources {
  /** The one that is asked for: one that comes along, a file, or a model's folder. */
  readonly name?: string | undefined;
  /** What the model's tokenizer is made from: the template beside it is the model's. */
  readonly tokenizer?: TokenizerFiles | undefined;
  /** The model's folder or zip, for a template that is not beside a tokenizer. */
  readonly model?: string | undefined;
  /** What templates take for today: YYYY-MM-DD. */
  readonly date: string;
}

const templateSources = closed<TemplateSources>({
  name: optional(text),
  model: optional(text),
  date: text,
  tokenizer: optional(object({ path: text, contents: mapByName })),
});

/**
 * The template that is asked for, else that of the tokenizer or the model; undefined where none is. Errors: HoldfastError
 * for one that is not there.
 */
export async function findChatTemplate(
  files: FolderReader,
  sources: TemplateSources,
): Promise<ChatTemplate | undefined> {
  checkFiles(files);
  const { name, model, date } = check(templateSources, sources, 'the sources of a template');
  const { tokenizer } = sources;
  const beside = tokenizer && templateIn(tokenizer.contents, tokenizer.path);
  const inModel = model === undefined || beside?.text !== undefined ? undefined : await inFolder(files, model);
  const { text, ...marks } = { ...inModel, ...beside };
  if (name === undefined) {
    const path = beside?.text === undefined ? model : tokenizer?.path;
    return text === undefined ? undefined : { ...marks, text, name: `of ${path}`, date };
  }
  if (Object.hasOwn(BUILT_IN_TEMPLATES, name)) {
    return { ...marks, name, text: BUILT_IN_TEMPLATES[name as keyof typeof BUILT_IN_TEMPLATES], date };
  }
  const kind = (await files.stat(name))?.kind;
  if (kind === 'file') return { ...marks, name, text: decode(await readWhole(files, name, MOST_SETTINGS_BYTES)), date };
  const found = kind === 'folder' ? await inFolder(files, name) : undefined;
  if (found?.text !== undefined) return { ...marks, ...found, text: found.text, name, date };
  const names = Object.keys(BUILT_IN_TEMPLATES).join(', ');
  throw new HoldfastError(
    `chat template ${name}: ${kind === 'folder' ? 'the folder has none' : 'nothing is there'}; name ${names}, a file, or a model's folder`,
  );
}

/** The files of a tokenizer with the template that its model was taught with, where it is another than theirs. */
export function withTemplate(files: TokenizerFiles, template: ChatTemplate | undefined): TokenizerFiles {
  if (!template || templateIn(files.contents, files.path).text === template.text) return files;
  return { ...files, contents: new Map([...files.contents, [CHAT_TEMPLATE, new TextEncoder().encode(template.text)]]) };
}

/** The chat template of a model's folder, a run (its latest checkpoint), or a zip of either. */
async function inFolder(from: FolderReader, path: string): Promise<Partial<Found>> {
  const files = await readerOf(from, path);
  const read = async (folder: string): Promise<Contents> => {
    const contents = new Map<string, Uint8Array<ArrayBuffer>>();
    for (const name of [CHAT_TEMPLATE, CONFIG_FILE, MARKS_FILE]) {
      const at = join(folder, name);
      if ((await files.stat(at))?.kind === 'file') contents.set(name, await readWhole(files, at, MOST_SETTINGS_BYTES));
    }
    return contents;
  };
  const isModel = await modelFolder(files, path).then(
    () => true,
    () => false,
  );
  // A folder may have nothing of a model but its template.
  return templateIn(await (isModel ? opening(files, path, read) : read(path)), path);
}

/** `path`: where they lie. */
function templateIn(contents: Contents, path: string): Partial<Found> {
  const jsonIn = (name: string): Readonly<Record<string, unknown>> => {
    const bytes = contents.get(name);
    if (!bytes) return {};
    const json = parseJSON(bytes, join(path, name), 'copy the model again');
    if (isObject(json)) return json;
    throw new HoldfastError(`${join(path, name)} is ${show(json)}; it must be an object`);
  };
  const [config, map] = [jsonIn(CONFIG_FILE), jsonIn(MARKS_FILE)];
  const template = contents.get(CHAT_TEMPLATE);
  const chosen = template ? decode(template) : chosenTemplate(config['chat_template'], join(path, CONFIG_FILE));
  const mark = (name: string) => markOf(config[name]) ?? markOf(map[name]);
  const [bos, eos] = [mark('bos_token'), mark('eos_token')];
  return {
    ...(chosen !== undefined && { text: chosen }),
    ...(bos !== undefined && { bos }),
    ...(eos !== undefined && { eos }),
  };
}

/** Older models have several, by name. */
function chosenTemplate(found: unknown, path: string): string | undefined {
  if (found === undefined || found === null) return undefined;
  if (!Array.isArray(found))
    return check(object({ chat_template: text }), { chat_template: found }, path).chat_template;
  const { chat_template: all } = check(object({ chat_template: namedTemplates }), { chat_template: found }, path);
  const chosen = all.find(({ name }) => name === 'default') ?? (all.length === 1 ? all[0] : undefined);
  if (chosen) return chosen.template;
  throw new HoldfastError(`${path}: chat_template is a list of ${all.length} with no "default"; name a file instead`);
}

/** A special token's text: as it is, or in an object of its properties. */
function markOf(found: unknown): string | undefined {
  if (typeof found === 'string') return found;
  return isObject(found) && typeof found['content'] === 'string' ? found['content'] : undefined;
}

const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
