// The chat template of a model that is there: the one that is asked for, the one that its run was taught with, or the one
// beside it. What is done with it is data/records/.

import type { ChatTemplate } from '../data/records/chat-template.ts';
import { findChatTemplate, type TemplateSources } from '../data/records/find-template.ts';
import type { Host } from '../runtime/host.ts';
import { savedState } from '../train/run/saved-state.ts';
import { HoldfastError } from '../util/errors.ts';

/** Undefined where there is none. Errors: HoldfastError for one that was asked for and is not there. */
export async function findTemplateFor(
  host: Host,
  sources: Omit<TemplateSources, 'date'>,
): Promise<ChatTemplate | undefined> {
  const date = new Date().toISOString().slice(0, 10);
  const { name, model } = sources;
  const taught = name === undefined && model !== undefined ? await taughtWith(host, model) : undefined;
  return taught ?? (await findChatTemplate(host.files, { ...sources, date }));
}

/** The chat template that a run was taught with; none for a model that is no run. */
async function taughtWith(host: Host, model: string): Promise<ChatTemplate | undefined> {
  try {
    return (await savedState(host, model)).settings.records?.template;
  } catch (error) {
    if (error instanceof HoldfastError) return undefined;
    throw error;
  }
}
