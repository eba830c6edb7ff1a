// The chat template of a model that is there: the one that is asked for, the one that its run was taught with, or the one
// beside it. What is done with it is data/records/.

import type { ChatTemplate } from '../data/records/chat-template.ts';
import { findChatTemplate, type TemplateSources } from '../data/records/find-template.ts';
import type { Host } from '../runtime/host.ts';
import { settingsIn } from '../train/run/saved-state.ts';

/** Undefined where there is none. Errors: HoldfastError for one that was asked for and is not there. */
export async function findTemplateFor(
  host: Host,
  sources: Omit<TemplateSources, 'date'>,
): Promise<ChatTemplate | undefined> {
  const date = today();
  const { name, model } = sources;
  const run = name === undefined && model !== undefined ? await settingsIn(host.files, model) : undefined;
  const taught = run?.records?.template;
  return taught ?? (await findChatTemplate(host.files, { ...sources, date }));
}

const today = (): string => new Date().toISOString().slice(0, 10);
