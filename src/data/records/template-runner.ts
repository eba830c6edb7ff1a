// Chat templates, run for what writes a model for other programs (formats/gguf). What a template fails at or refuses is nothing.

import type { TemplateRunner } from '../../formats/gguf/ollama-template.ts';
import { HoldfastError } from '../../util/errors.ts';
import { ChatRenderer, type ChatTemplate } from './chat-template.ts';
import { endOfTurns } from './turns.ts';

export const templateRunner: TemplateRunner = {
  // No date ends a turn.
  turnEnd: (template) => unlessRefused({ ...template, date: '2000-01-01' }, endOfTurns),
  write: (template, messages, addGenerationPrompt) =>
    unlessRefused(template, (renderer) =>
      renderer.render(
        messages.map((message) => ({ ...message })),
        { addGenerationPrompt },
      ),
    ),
};

function unlessRefused<T>(template: Omit<ChatTemplate, 'name'>, run: (renderer: ChatRenderer) => T): T | undefined {
  try {
    return run(new ChatRenderer({ ...template, name: 'of the model' }));
  } catch (error) {
    if (error instanceof HoldfastError) return undefined;
    throw error;
  }
}
