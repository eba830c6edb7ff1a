// Jinja, run with bounds. What an operation takes is known from its operands and charged before it is carried out; what it
// makes is weighed behind it.
//
// Invariant: the work of a program, the memory of all that it makes, and the size of each value, are bounded by what it is
// given, whatever it says.

import { type Environment, Interpreter } from '@huggingface/jinja';

/** Characters of a value, with ITEM_SIZE for each item at each place where it stands; more by GIVEN_TIMES what is given. */
const MOST_SIZE = 2 ** 22;
const GIVEN_TIMES = 4;
/** What an item counts for in a size. */
const ITEM_SIZE = 8;
/** Items of a list. */
export const MOST_ITEMS = 2 ** 17;
/** Lines, or characters, that a text is taken apart into on the way. */
const MOST_PIECES = 2 ** 22;
/** Characters that are looked for and replaced. */
const MOST_PATTERN = 2 ** 16;
/** Expressions, turns of loops, and parts of the values that they work on: some seconds of it. */
const MOST_WORK = 2e6;
/** A turn of a loop costs as much as so many expressions. */
const TURN_WORK = 20;
/** An item that is visited, or a piece of a text that is found. */
const ITEM_WORK = 1 / 2;
/** A character that is visited by itself. */
const CHARACTER_WORK = 1 / 16;
/** Characters, or items, that cost as much as an expression. */
const FREE_SIZE = 256;
/** Characters of what is looked for that cost no more than one. */
const FREE_PATTERN = 16;

type Evaluate = Interpreter['evaluate'];
type Value = ReturnType<Evaluate>;
type Call = (args: Value[], scope: Environment) => Value;
type Named = ReadonlyMap<string, Value>;

/** What is read of any kind of node of a program. */
interface Node {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** An operation on its way: its operands as far as they are known. */
interface Operation {
  readonly node: Node;
  readonly values: Map<unknown, Value>;
}

/** Of a value, all that it holds counted at each place where it stands. */
interface Weight {
  readonly size: number;
  /** Sizes, at each depth again: what writing it down copies. */
  readonly copied: number;
  readonly items: number;
  /** It holds nothing that may change. */
  readonly fixed: boolean;
}

const ONE: Weight = { size: ITEM_SIZE, copied: ITEM_SIZE, items: 1, fixed: true };

/** A template did more than its bounds allow. */
export class Exceeded extends Error {}

/** Counts what it does. */
export class BoundedInterpreter extends Interpreter {
  #work = 0;
  /** What a value may weigh. */
  #most = Number.POSITIVE_INFINITY;
  #operation: Operation | undefined;
  readonly #weights = new WeakMap<object, Weight>();
  /** Namespaces that are being weighed. */
  readonly #open = new Set<unknown>();
  /** Functions that are charged for what they do. */
  readonly #charged = new WeakSet<object>();
  readonly #seen = new WeakSet<object>();
  /** What loops go over: each of its items is a turn. */
  readonly #iterables = new WeakSet<object>();
  /** What is written down. */
  readonly #written = new WeakSet<object>();
  /** What is laid out into arguments. */
  readonly #spread = new WeakSet<object>();
  readonly #nodes = new WeakMap<object, number>();

  constructor(environment: Environment) {
    super(environment);
    let given = 0;
    for (const value of environment.variables.values()) given += this.#weigh(value).size;
    this.#most = MOST_SIZE + GIVEN_TIMES * given;
    this.#work = 0;
  }

  override evaluate(...[statement, environment]: Parameters<Evaluate>): Value {
    if (!statement) return super.evaluate(statement, environment);
    const node = statement as unknown as Node;
    if (node.type === 'FilterStatement') return this.#filterBlock(node, environment);
    this.#learn(node);
    if (node.type === 'Macro' || node.type === 'CallStatement') this.#charge(this.#count(node) * ITEM_WORK);
    const outer = this.#operation;
    const operation = OPERATIONS.has(node.type) ? { node, values: new Map<unknown, Value>() } : undefined;
    this.#operation = operation;
    let value: Value;
    try {
      value = super.evaluate(statement, environment);
    } finally {
      this.#operation = outer;
    }
    this.#measure(node, value);
    if (node.type === 'MemberExpression') this.#chargeCalls(operation?.values.get(node.object), value);
    if (outer) {
      outer.values.set(node, value);
      this.#foresee(outer, node);
    }
    return value;
  }

  /** As a filter of an expression: what is filtered is a value then. */
  #filterBlock({ body, filter }: Node, environment: Environment): Value {
    const { value } = this.#evaluate({ type: 'Program', body }, environment);
    return this.#evaluate({ type: 'FilterExpression', operand: { type: 'StringLiteral', value }, filter }, environment);
  }

  #evaluate(node: Node, environment: Environment): Value {
    return this.evaluate(node as unknown as Parameters<Evaluate>[0], environment);
  }

  /** Which of its parts cost more than to be evaluated. */
  #learn(node: Node): void {
    if (this.#seen.has(node)) return;
    this.#seen.add(node);
    for (const body of [node.body, node.alternate, node.defaultBlock]) {
      if (Array.isArray(body)) for (const part of body) this.#written.add(part);
    }
    const iterable = node.iterable as Node | undefined;
    if (iterable) this.#iterables.add(iterable.type === 'SelectExpression' ? (iterable.lhs as Node) : iterable);
    for (const { args } of [node, node.filter, node.call].filter(Boolean) as Node[]) {
      for (const { type, argument } of (args ?? []) as Node[]) {
        if (type === 'SpreadExpression' || type === 'KeywordSpreadExpression') this.#spread.add(argument as Node);
      }
    }
  }

  #charge(work: number): void {
    this.#work += work;
    if (!(this.#work <= MOST_WORK)) throw new Exceeded('it does not come to an end');
  }

  #bound(size: number): void {
    if (!(size <= this.#most)) throw new Exceeded(`it writes more than ${this.#most} characters`);
  }

  /** Of what an expression came to. */
  #measure(node: Node, value: Value): void {
    const size = sizeOf(value);
    if (typeof value.value === 'string') this.#bound(size);
    this.#charge(1 + (this.#iterables.has(node) ? size * TURN_WORK : size / FREE_SIZE));
    if (!isContainer(value.value)) return;
    this.#weigh(value);
    if (this.#spread.has(node)) this.#charge(size * ITEM_WORK);
    if (this.#written.has(node)) this.#chargeWalk(value);
  }

  #weigh(value: Value): Weight {
    const held: unknown = value.value;
    if (typeof held === 'string') {
      const size = ITEM_SIZE + held.length;
      return { ...ONE, size, copied: size };
    }
    if (!isContainer(held)) return ONE;
    const known = this.#weights.get(held);
    if (known) return known;
    if (this.#open.has(held)) throw new Exceeded('it makes a value that holds itself');
    this.#open.add(held);
    try {
      const weight = this.#weighItems(value, held);
      if (weight.fixed) this.#weights.set(held, weight);
      return weight;
    } finally {
      this.#open.delete(held);
    }
  }

  #weighItems(value: Value, held: readonly Value[] | Named): Weight {
    this.#charge(sizeOf(value) * ITEM_WORK);
    let { size, copied, items } = ONE;
    // Nothing but namespaces can be assigned to.
    let fixed = value.type !== 'NamespaceValue';
    if (held instanceof Map) for (const key of held.keys()) size += String(key).length;
    for (const item of held.values()) {
      const of = this.#weigh(item);
      size += of.size;
      copied += of.copied;
      items += of.items;
      fixed &&= of.fixed;
    }
    if (size > this.#most) throw new Exceeded(`it makes a value of more than ${this.#most} characters`);
    return { size, copied: copied + size, items, fixed };
  }

  /** For all that a value holds, as it is written down. */
  #chargeWalk(value: Value): void {
    const { items, copied } = this.#weigh(value);
    this.#charge(items * ITEM_WORK + copied / FREE_SIZE);
  }

  /** For a search. */
  #chargeSearch(text: string, pattern: string): void {
    this.#charge((text.length * Math.ceil(pattern.length / FREE_PATTERN) + pattern.length) / FREE_SIZE);
  }

  /** How often a text has another; at most so often. */
  #occurrences(text: string, pattern: string, most: number): number {
    this.#chargeSearch(text, pattern);
    if (pattern === '') return Math.min(most, text.length + 1);
    let count = 0;
    for (let at = text.indexOf(pattern); at >= 0 && count < most; at = text.indexOf(pattern, at + pattern.length))
      count++;
    this.#charge(count * ITEM_WORK);
    return count;
  }

  /** Nodes of a part of the program. */
  #count(node: unknown): number {
    if (typeof node !== 'object' || node === null) return 0;
    const known = this.#nodes.get(node);
    if (known !== undefined) return known;
    let count = 1;
    for (const part of node instanceof Map ? [...node].flat() : Object.values(node)) count += this.#count(part);
    this.#nodes.set(node, count);
    return count;
  }

  /** What an operation will take, once all of its operands are known. */
  #foresee({ node, values }: Operation, last: Node): void {
    if (node.type === 'BinaryExpression' && last === node.right) {
      const left = values.get(node.left);
      const right = values.get(node.right);
      if (left && right) this.#foreseeBinary((node.operator as Node).value as string, left, right);
    }
    if (node.type === 'FilterExpression') {
      const filter = node.filter as Node;
      const args = (filter.args ?? []) as Node[];
      const operand = values.get(node.operand);
      if (!operand || values.size <= args.length) return;
      const name = (filter.type === 'CallExpression' ? (filter.callee as Node) : filter).value as string;
      this.#foreseeCall(name, operand, ...argumentsOf(args, values));
    }
    if (node.type === 'MemberExpression' && last === node.object) {
      const text: unknown = values.get(last)?.value;
      if ((node.property as Node).type === 'SliceExpression' && typeof text === 'string') this.#takeApart(text);
    }
  }

  #takeApart({ length }: string): void {
    if (length > MOST_PIECES) throw new Exceeded(`it takes more than ${MOST_PIECES} characters apart`);
    this.#charge(length * CHARACTER_WORK);
  }

  #foreseeBinary(operator: string, left: Value, right: Value): void {
    if (operator === 'and' || operator === 'or') return;
    const list: unknown = right.value;
    if (typeof left.value === 'string' && typeof list === 'string') {
      if (operator.endsWith('in') && left.value.length <= list.length) this.#chargeSearch(list, left.value);
      return;
    }
    if (operator === 'in' || operator === 'not in') {
      if (!Array.isArray(list)) return;
      const compared = Math.min(this.#weigh(right).size, list.length * this.#weigh(left).size);
      this.#charge(list.length * ITEM_WORK + compared / FREE_SIZE);
      return;
    }
    // A list beside what is none is written down to be compared, too.
    const lists = Array.isArray(left.value) && Array.isArray(list);
    if (lists && operator !== '~') return;
    for (const value of [left, right]) if (Array.isArray(value.value)) this.#chargeWalk(value);
  }

  /** Methods of values are charged as filters are. */
  #chargeCalls(object: Value | undefined, value: Value): void {
    if (!object || value.type !== 'FunctionValue' || this.#charged.has(value)) return;
    const name = [...object.builtins].find(([, builtin]) => builtin === value)?.[0];
    if (name === undefined) return;
    this.#charged.add(value);
    const call = value.value as Call;
    (value as { value: Call }).value = (args, scope) => {
      const named = args.at(-1)?.type === 'KeywordArgumentsValue' ? (args.at(-1)?.value as Named) : undefined;
      this.#foreseeCall(name, object, named ? args.slice(0, -1) : args, named ?? new Map());
      return call(args, scope);
    };
  }

  #foreseeCall(name: string, operand: Value, args: readonly Value[], named: Named): void {
    const held: unknown = operand.value;
    if (typeof held === 'string') this.#foreseeText(name, held, args, named);
    else if (isContainer(held)) this.#foreseeContainer(name, operand, args, named);
  }

  #foreseeText(name: string, text: string, args: readonly Value[], named: Named): void {
    this.#charge(1 + text.length / FREE_SIZE);
    if (name === 'title') this.#takeApart(text);
    else if (name === 'split') this.#foreseeSplit(text, args[0]?.value);
    else if (name === 'replace') {
      const [from, to] = [textOf(args[0]), textOf(args[1])];
      if (from.length > MOST_PATTERN) throw new Exceeded(`it looks for more than ${MOST_PATTERN} characters`);
      const count = (args[2] ?? named.get('count'))?.value;
      const most = typeof count === 'number' && count >= 0 ? count : Number.POSITIVE_INFINITY;
      this.#bound(text.length + this.#occurrences(text, from, most) * (to.length - from.length));
    } else if (name === 'indent') {
      const width = Number((args[0] ?? named.get('width'))?.value ?? 4);
      const lines = 1 + this.#occurrences(text, '\n', MOST_PIECES);
      if (lines > MOST_PIECES) throw new Exceeded(`it takes more than ${MOST_PIECES} lines apart`);
      this.#bound(text.length + lines * width);
    } else if (name === 'join') {
      this.#takeApart(text);
      this.#bound(text.length * (1 + textOf(args[0] ?? named.get('separator')).length));
    } else if (name === 'startswith' || name === 'endswith') {
      const list = args[0];
      if (!list || !Array.isArray(list.value)) return;
      const compared = Math.min(this.#weigh(list).size, list.value.length * (ITEM_SIZE + text.length));
      this.#charge(list.value.length * ITEM_WORK + compared / FREE_SIZE);
    }
  }

  #foreseeSplit(text: string, separator: unknown): void {
    let count = 0;
    if (typeof separator === 'string') count = this.#occurrences(text, separator, MOST_ITEMS);
    else for (const _ of text.matchAll(/\S+/g)) if (++count >= MOST_ITEMS) break;
    if (count >= MOST_ITEMS) throw new Exceeded(`it makes a list of more than ${MOST_ITEMS} items`);
    this.#charge(count * ITEM_WORK);
  }

  #foreseeContainer(name: string, operand: Value, args: readonly Value[], named: Named): void {
    if (FREE_FILTERS.has(name)) return;
    const length = sizeOf(operand);
    const { size, copied, items } = this.#weigh(operand);
    if (name === 'tojson' || name === 'string' || name === 'join') {
      this.#chargeWalk(operand);
      const between = name === 'join' ? textOf(args[0] ?? named.get('separator')).length : separatorsOf(named);
      const indent = Math.max(0, Number(named.get('indent')?.value ?? 0));
      this.#bound(size + items * between + indent * copied);
    } else if (name === 'sort' || name === 'dictsort') {
      const path = String((args[2] ?? named.get('attribute'))?.value ?? '').length;
      const times = 2 * Math.ceil(Math.log2(length + 2));
      this.#charge(times * (length * (1 + path) * ITEM_WORK + size / FREE_SIZE));
    } else if (name === 'map') {
      this.#charge(length * (1 + textOf(named.get('attribute')).length) * ITEM_WORK);
    } else if (name === 'selectattr' || name === 'rejectattr') {
      this.#charge(length * (ITEM_WORK + textOf(args[2]).length / FREE_SIZE));
      if (/^(upper|lower)$/.test(textOf(args[1]))) this.#charge(size / FREE_SIZE);
    } else if (name === 'unique') this.#charge(length * ITEM_WORK + size / FREE_SIZE);
    else this.#charge(length * ITEM_WORK);
  }
}

/** What is charged before it is carried out. */
const OPERATIONS: ReadonlySet<string> = new Set(['BinaryExpression', 'FilterExpression', 'MemberExpression']);
/** They look at no more than an item. */
const FREE_FILTERS: ReadonlySet<string> = new Set(['default', 'first', 'get', 'last', 'length', 'list', 'safe']);

function isContainer(held: unknown): held is readonly Value[] | Named {
  return Array.isArray(held) || held instanceof Map;
}

function textOf(value: Value | undefined): string {
  return typeof value?.value === 'string' ? value.value : '';
}

/** Characters between two items of what is written as JSON. */
function separatorsOf(named: Named): number {
  const separators: unknown = named.get('separators')?.value;
  if (!Array.isArray(separators)) return 0;
  return textOf(separators[0]).length + textOf(separators[1]).length;
}

/** As a call is given them: by place, and by name. */
function argumentsOf(args: readonly Node[], values: ReadonlyMap<unknown, Value>): [Value[], Map<string, Value>] {
  const placed: Value[] = [];
  const named = new Map<string, Value>();
  for (const arg of args) {
    const value = values.get(arg.argument ?? (arg.type === 'KeywordArgumentExpression' ? arg.value : arg));
    const held: unknown = value?.value;
    if (!value) continue;
    if (arg.type === 'SpreadExpression') for (const item of Array.isArray(held) ? held : []) placed.push(item);
    else if (arg.type === 'KeywordSpreadExpression') {
      if (held instanceof Map) for (const [key, item] of held) named.set(key, item);
    } else if (arg.type === 'KeywordArgumentExpression') named.set((arg.key as Node).value as string, value);
    else placed.push(value);
  }
  return [placed, named];
}

/** Characters of a text, items of a list or of a dictionary; of all else 1. */
function sizeOf({ value }: Value): number {
  if (typeof value === 'string') return value.length;
  if (Array.isArray(value)) {
    if (value.length > MOST_ITEMS) throw new Exceeded(`it makes a list of more than ${MOST_ITEMS} items`);
    return value.length;
  }
  return value instanceof Map ? value.size : 1;
}
