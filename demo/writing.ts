// `Writing`: the text that a model writes: the samples of its training, texts and answers that are asked for, with its
// adapter and without, and what it expects after a prompt.

import { type Candidate, type Holdfast, messageOf, type RunInfo, TASKS, type Voice } from '../src/browser/index.ts';
import { Chat, places, type Side } from './chat.ts';
import type { RunCurves } from './curve-data.ts';
import { whole } from './figures.ts';
import { byId, make, SILENT, scrollable, setText, setUsable } from './page.ts';

const CANDIDATES = 8;
/** Between two looks at what comes next, while a run trains: each costs it a moment. */
const LOOK_MS = 2000;
/** A look that cannot be yet is tried again, so often at most. */
const AGAIN_MS = 100;

export class Writing {
  readonly #trainer: () => Holdfast['trainer'] | undefined;
  readonly #sample = byId('sample', HTMLElement);
  readonly #title = byId('sample-title', HTMLElement);
  readonly #earlier = byId('sample-earlier', HTMLButtonElement);
  readonly #later = byId('sample-later', HTMLButtonElement);
  readonly #write = byId('write', HTMLButtonElement);
  readonly #prompt = byId('prompt', HTMLInputElement);
  readonly #temperature = byId('temperature', HTMLInputElement);
  readonly #length = byId('length', HTMLInputElement);
  readonly #next = byId('next', HTMLElement);
  readonly #nextPrompt = byId('next-prompt', HTMLElement);
  readonly #modes = byId('modes', HTMLFieldSetElement);
  readonly #adapters = byId('adapters', HTMLFieldSetElement);
  readonly #paper = byId('paper', HTMLElement);
  readonly #chatBox = byId('chat', HTMLElement);
  readonly #anew = byId('chat-anew', HTMLButtonElement);
  readonly #chat = new Chat(this.#chatBox);
  /** How the run that is shown can be written with. */
  #voice: Voice = { writes: true, chats: false, adapter: false };
  readonly #nothing = this.#sample.cloneNode(true).childNodes;
  #run: string | undefined;
  /** What its texts begin with, where the person says nothing else. */
  #beginning = this.#prompt.value;
  #curves: RunCurves | undefined;
  /** Which sample is shown: of the run's, or the newest. */
  #at: number | 'newest' = 'newest';
  /** A text that was asked for is shown instead. */
  #own = false;
  #writing = false;
  /** Nothing more is wanted of the text that is written. */
  #ended = false;
  /** Counts what was shown in place of a text that is written: then it is written no further, and says nothing more. */
  #left = 0;
  #inView = false;
  #looked = Number.NEGATIVE_INFINITY;
  #looking = false;
  #again: ReturnType<typeof setTimeout> | undefined;

  constructor(trainer: () => Holdfast['trainer'] | undefined) {
    this.#trainer = trainer;
    scrollable(this.#paper);
    byId('write-form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      void (this.#chats ? this.#answer() : this.#writeText());
    });
    this.#write.addEventListener('click', ({ detail }) => {
      // Not by the second press of a double click that began it.
      if (this.#writing && detail < 2) this.#end();
    });
    this.#modes.addEventListener('change', () => this.#showMode());
    this.#anew.addEventListener('click', () => {
      this.#chat.clear();
      this.#prompt.focus();
    });
    this.#earlier.addEventListener('click', () => this.#turn(-1));
    this.#later.addEventListener('click', () => this.#turn(1));
    this.#prompt.addEventListener('input', () => this.#lookAnew());
    for (let i = 0; i < CANDIDATES; i++) {
      const bar = make('span', { className: 'bar' });
      this.#next.append(
        make('li', {}, make('code', {}, '–'), make('span', { className: 'track' }, bar), make('output', SILENT)),
      );
    }
    new IntersectionObserver((entries) => {
      this.#inView = entries.at(-1)?.isIntersecting ?? false;
      this.look();
    }).observe(this.#next);
  }

  /** Another run, or the same with more samples. */
  show(shown: Pick<RunInfo, 'id' | 'settings'> | undefined, curves: RunCurves): void {
    const run = shown?.id;
    if (run !== this.#run) {
      this.#run = run;
      if (shown?.settings) this.#beginWith(beginningOf(shown.settings));
      this.#own = false;
      this.#left++;
      this.#at = 'newest';
      this.#showNext([]);
      this.#lookAnew();
      this.#chat.clear();
      void this.#listen(run);
    }
    this.#curves = curves;
    this.#write.disabled = run === undefined;
    this.#showSample();
    this.look();
  }

  #beginWith(beginning: string): void {
    if (this.#prompt.value === this.#beginning) this.#prompt.value = beginning;
    this.#beginning = beginning;
  }

  /** Looks at what comes next, if it is in sight: now, or once the last look is a while ago and nothing is written. */
  look(): void {
    const [trainer, run, prompt] = [this.#trainer(), this.#run, this.#prompt.value];
    if (!trainer || !run || !this.#inView || this.#chats) return;
    const wait = this.#looked + LOOK_MS - performance.now();
    if (this.#looking || this.#writing || wait > 0) {
      this.#again ??= setTimeout(
        () => {
          this.#again = undefined;
          this.look();
        },
        Math.max(AGAIN_MS, wait),
      );
      return;
    }
    this.#looking = true;
    this.#looked = performance.now();
    const asked = prompt === '' ? '\n' : prompt;
    trainer
      .next(run, asked, CANDIDATES)
      .then((candidates) => {
        if (run !== this.#run) return;
        setText(this.#nextPrompt, prompt === '' ? 'a new line' : prompt);
        this.#showNext(candidates);
      })
      // A run without a checkpoint, or one that has just ended: there will be another look.
      .catch(() => {})
      .finally(() => {
        this.#looking = false;
      });
  }

  /** As soon as can be: what was looked at is another prompt's, or another run's. */
  #lookAnew(): void {
    clearTimeout(this.#again);
    this.#again = undefined;
    this.#looked = Number.NEGATIVE_INFINITY;
    this.look();
  }

  get #chats(): boolean {
    return this.#voice.chats && this.#modes.querySelector<HTMLInputElement>('input:checked')?.value === 'chat';
  }

  /** Which weights write. */
  get #sides(): readonly Side[] {
    const { value = 'with' } = this.#adapters.querySelector<HTMLInputElement>('input:checked') ?? {};
    if (!this.#voice.adapter) return ['with'];
    return value === 'both' ? ['with', 'without'] : [value as Side];
  }

  /** Hears how a run can be written with; one that learned to answer is talked to. */
  async #listen(run: string | undefined): Promise<void> {
    const nothing: Voice = { writes: true, chats: false, adapter: false };
    const found =
      run === undefined
        ? nothing
        : await this.#trainer()
            ?.voiceOf(run)
            .catch(() => nothing);
    if (run !== this.#run || !found) return;
    this.#voice = found;
    this.#modes.hidden = !found.chats;
    this.#adapters.hidden = !found.adapter;
    const mode = this.#modes.querySelector<HTMLInputElement>(`input[value=${found.chats ? 'chat' : 'text'}]`);
    if (mode) mode.checked = true;
    this.#showMode();
  }

  #showMode(): void {
    const chats = this.#chats;
    this.#chatBox.hidden = !chats;
    this.#anew.hidden = !chats;
    this.#sample.hidden = chats;
    this.#earlier.hidden = chats;
    this.#later.hidden = chats;
    byId('next-box', HTMLElement).hidden = chats;
    this.#paper.setAttribute('aria-label', chats ? 'Conversation with the model' : 'Text written by the model');
    setText(byId('prompt-label', HTMLElement), chats ? 'Ask' : 'Begin with');
    this.#showButton();
    this.#prompt.placeholder = chats ? '' : 'nothing';
    if (chats && this.#prompt.value === this.#beginning) this.#prompt.value = '';
    if (!chats && this.#prompt.value === '') this.#prompt.value = this.#beginning;
    if (chats) setText(this.#title, 'a conversation');
    this.#showSample();
    this.look();
  }

  /** What the form asks for. */
  #asked(side: Side) {
    return {
      tokens: this.#length.valueAsNumber || 200,
      temperature: Number.isFinite(this.#temperature.valueAsNumber) ? this.#temperature.valueAsNumber : 0.7,
      ...(side === 'without' && { adapter: 'none' as const }),
    };
  }

  async #answer(): Promise<void> {
    const [trainer, run, question] = [this.#trainer(), this.#run, this.#prompt.value.trim()];
    if (!trainer || !run || this.#writing || question === '') return;
    this.#prompt.value = '';
    const seed = newSeed();
    await this.#busy('a conversation', (goesOn) =>
      this.#chat.ask(question, this.#sides, goesOn, (side, messages, onText) =>
        trainer.chat(run, { messages, seed, ...this.#asked(side) }, onText),
      ),
    );
  }

  async #writeText(): Promise<void> {
    const [trainer, run] = [this.#trainer(), this.#run];
    if (!trainer || !run || this.#writing) return;
    this.#own = true;
    const prompt = this.#prompt.value === '' ? '\n' : this.#prompt.value;
    const sides = this.#sides;
    const { element, texts } = places(sides);
    const only = document.createTextNode('');
    const seed = newSeed();
    this.#sample.replaceChildren(make('b', {}, prompt), sides.length > 1 ? element : only);
    await this.#busy(`asked for, at temperature ${this.#asked('with').temperature}`, async (goesOn) => {
      for (const side of sides) {
        if (!goesOn()) return;
        const text = sides.length > 1 ? texts.get(side) : only;
        const onText = (piece: string) => {
          text?.appendData(piece);
          this.#paper.scrollTop = this.#paper.scrollHeight;
          return goesOn();
        };
        await trainer.sample(run, { prompt, seed, ...this.#asked(side) }, onText);
      }
    });
  }

  /** Writes; `title` says afterwards what is there, or what went wrong. `goesOn`: what is written is still shown, and wanted. */
  async #busy(title: string, work: (goesOn: () => boolean) => Promise<void>): Promise<void> {
    const left = this.#left;
    const stays = () => left === this.#left;
    this.#ended = false;
    this.#showWriting(true);
    setText(this.#title, 'writing …');
    try {
      await work(() => stays() && !this.#ended);
      if (stays()) setText(this.#title, this.#ended ? `${title}, stopped` : title);
    } catch (error) {
      if (stays()) setText(this.#title, messageOf(error));
    }
    this.#showWriting(false);
    this.#write.disabled = this.#run === undefined;
  }

  /** The text that is written ends with its next piece. */
  #end(): void {
    this.#ended = true;
    setUsable(this.#write, false);
  }

  #showWriting(writing: boolean): void {
    this.#writing = writing;
    this.#chatBox.ariaBusy = String(writing);
    setUsable(this.#write, true);
    this.#showButton();
  }

  /** While something is written its button ends that, and the Enter key does nothing. */
  #showButton(): void {
    this.#write.type = this.#writing ? 'button' : 'submit';
    setText(this.#write, this.#writing ? 'Stop' : this.#chats ? 'Send' : 'Write');
  }

  #turn(by: number): void {
    const samples = this.#curves?.samples ?? [];
    const at = this.#at === 'newest' || this.#own ? samples.length - (this.#own && by < 0 ? 0 : 1) : this.#at;
    if (this.#own) this.#left++;
    this.#own = false;
    this.#at = Math.min(samples.length - 1, Math.max(0, at + by));
    if (this.#at === samples.length - 1) this.#at = 'newest';
    this.#showSample();
  }

  #showSample(): void {
    const samples = this.#curves?.samples ?? [];
    const index = this.#at === 'newest' ? samples.length - 1 : this.#at;
    const sample = samples[index];
    this.#earlier.disabled = samples.length === 0;
    this.#later.disabled = samples.length === 0;
    setUsable(this.#earlier, this.#own || index > 0);
    setUsable(this.#later, this.#own || index < samples.length - 1);
    if (this.#own || this.#chats) return;
    setText(this.#title, sample ? `after ${whole(sample.step)} steps` : 'no sample yet');
    if (sample) setText(this.#sample, sample.text);
    else this.#sample.replaceChildren(...[...this.#nothing].map((node) => node.cloneNode(true)));
  }

  #showNext(candidates: readonly Candidate[]): void {
    [...this.#next.children].forEach((row, i) => {
      const [code, track, output] = row.children as unknown as [HTMLElement, HTMLElement, HTMLElement];
      const candidate = candidates[i];
      setText(code, candidate ? shown(candidate.text) : '–');
      setText(output, candidate ? `${(100 * candidate.probability).toFixed(1)} %` : '');
      (track.firstElementChild as HTMLElement).style.transform = `scaleX(${candidate?.probability ?? 0})`;
    });
  }
}

/** Of the example a word that is all over it, of a task one of its problems; of another text nothing is known. */
function beginningOf({ task, data, from }: NonNullable<RunInfo['settings']>): string {
  if (task !== undefined) return TASKS[task].unseen(1, 1)[0]?.prompt ?? '';
  return data.length > 0 || from !== undefined ? '' : 'interface ';
}

/** The seed of a question, one for all that is compared. */
const newSeed = (): number => 1 + Math.floor(Math.random() * 2 ** 31);

const shown = (text: string): string => (text === ' ' ? 'space' : text);
