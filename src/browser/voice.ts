// The voice of a run: what its model does with what it is given, as its files say, and nothing computed. Where a run has settings
// they say what its model is; of weights alone, their config.json does, and the head of an adapter beside them.

import { holdPairs } from '../data/records/labelled.ts';
import { isSynthetic } from '../data/synthetic.ts';
import { describeAdapter, findModel } from '../formats/checkpoint.ts';
import type { ModelConfig } from '../formats/config.ts';
import { familyOf, labelsIn, shapeOf } from '../formats/families/index.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { withHeadOf } from '../train/run/open-model.ts';
import { templateOf } from './conversations.ts';
import { adapterBeside } from './models.ts';
import type { RunRecord, Voice } from './protocol.ts';
import { hasData } from './run-records.ts';

/** How the run in `folder` can be asked. Errors: HoldfastError for a model whose files are damaged. */
export async function voiceIn(host: BrowserHost, record: RunRecord, folder: string): Promise<Voice> {
  const { settings } = record;
  const beside = await adapterBeside(host.files, folder);
  const config = settings?.config ?? (await configIn(host, folder, beside));
  const adapter = settings?.lora !== undefined || beside !== undefined;
  if (!labelsIn(config)) {
    const { writes } = familyOf(config);
    const chats = writes && (await templateOf(host.files, record, folder)) !== undefined;
    return { writes, chats, adapter };
  }
  const tells = shapeOf(config).vocabulary > 0 ? 'texts' : 'images';
  const pairs = tells === 'texts' ? await pairsIn(host, record) : undefined;
  return { writes: false, chats: false, adapter, tells, ...(pairs !== undefined && { pairs }) };
}

async function configIn({ files }: BrowserHost, folder: string, beside: string | undefined): Promise<ModelConfig> {
  const { config } = await findModel(files, folder);
  return beside === undefined ? config : withHeadOf(config, await describeAdapter(files, beside, config));
}

/** Whether what a run learns from is pairs of texts; undefined where that is not here. */
async function pairsIn(host: BrowserHost, record: RunRecord): Promise<boolean | undefined> {
  const { data = [] } = record.settings ?? {};
  if (data.length === 0 || isSynthetic(data) || !(await hasData(host, record))) return undefined;
  return holdPairs(host, data);
}
