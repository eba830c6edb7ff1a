// Where a chat template comes from: by name, from a file, or out of a model's folder as Hugging Face's models keep it. Not
// what is done with it (chat-template.ts).

import { type Files, join } from '../../runtime/host.ts';
import { HoldfastError } from '../../util/errors.ts';
import { check, isObject, list, object, parseJSON, show, text } from '../../util/json.ts';
import { BUILT_IN_TEMPLATES, type ChatTemplate } from './chat-template.ts';

const TEMPLATE_FILE = 'chat_template.jinja';
const CONFIG_FILE = 'tokenizer_config.json';
const namedTemplates = list(object({ name: text, template: text }));

type Reader = Pick<Files, 'read' | 'stat'>;
type Found = Pick<ChatTemplate, 'text' | 'bos' | 'eos'>;

/**
 * The template that is asked for (one that comes along, a file, or a model's folder), else that of the model; undefined
 * where neither is. `model`: its folder. `date`: what templates take for today. Errors: HoldfastError for one that is not there.
 */
export async function findChatTemplate(
  files: Reader,
  { name, model, date }: { name?: string | undefined; model?: string | undefined; date: string },
): Promise<ChatTemplate | undefined> {
  const own = model === undefined ? undefined : await inFolder(files, model);
  if (name === undefined)
    return own?.text === undefined ? undefined : { ...own, text: own.text, name: `of ${model}`, date };
  const marks = { ...(own?.bos !== undefined && { bos: own.bos }), ...(own?.eos !== undefined && { eos: own.eos }) };
  if (Object.hasOwn(BUILT_IN_TEMPLATES, name)) {
    return { ...marks, name, text: BUILT_IN_TEMPLATES[name as keyof typeof BUILT_IN_TEMPLATES], date };
  }
  const kind = (await files.stat(name))?.kind;
  if (kind === 'file') return { ...marks, name, text: decode(await files.read(name)), date };
  const found = kind === 'folder' ? await inFolder(files, name) : undefined;
  if (found?.text !== undefined) return { ...marks, ...found, text: found.text, name, date };
  const names = Object.keys(BUILT_IN_TEMPLATES).join(', ');
  throw new HoldfastError(
    `chat template ${name}: ${kind === 'folder' ? 'the folder has none' : 'nothing is there'}; name ${names}, a file, or a model's folder`,
  );
}

async function inFolder(files: Reader, folder: string): Promise<Partial<Found>> {
  const [own, configured] = [join(folder, TEMPLATE_FILE), join(folder, CONFIG_FILE)];
  const isFile = async (path: string) => (await files.stat(path))?.kind === 'file';
  const template = (await isFile(own)) ? decode(await files.read(own)) : undefined;
  if (!(await isFile(configured))) return template === undefined ? {} : { text: template };
  const config = parseJSON(await files.read(configured), configured, 'copy the model again');
  if (!isObject(config)) throw new HoldfastError(`${configured} is ${show(config)}; it must be an object`);
  const chosen = template ?? chosenTemplate(config['chat_template'], configured);
  const [bos, eos] = [markOf(config['bos_token']), markOf(config['eos_token'])];
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
