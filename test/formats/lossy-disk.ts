// A disk that loses power, for tests: folders map names to files and folders, and each change of a folder (a name set, a
// name taken away, a rename as both at once) is lost or kept by itself until the folder is synced; bytes written to a
// file likewise until it is flushed. What a POSIX file system may do at worst, with renames that are atomic.

import { createHash } from 'node:crypto';
import type { Files, OpenFile, Sha256, WriteStream } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';

interface FileNode {
  readonly kind: 'file';
  bytes: Uint8Array<ArrayBuffer>;
  synced: Uint8Array<ArrayBuffer>;
}

type Change = readonly (readonly [name: string, node: Node | undefined])[];

interface FolderNode {
  readonly kind: 'folder';
  readonly names: Map<string, Node>;
  /** As on the disk, before `changes`. */
  readonly synced: Map<string, Node>;
  changes: Change[];
}

type Node = FileNode | FolderNode;

const newFolder = (): FolderNode => ({ kind: 'folder', names: new Map(), synced: new Map(), changes: [] });

function applied(names: Map<string, Node>, change: Change): void {
  for (const [name, node] of change) {
    if (node) names.set(name, node);
    else names.delete(name);
  }
}

export class LossyDisk implements Files {
  #root = newFolder();
  #cutAt: number;
  /** Changes of the disk so far. */
  changes = 0;

  /** The power goes at this change, which is not made, and all after it fail. */
  constructor(cutAt = Number.POSITIVE_INFINITY) {
    this.#cutAt = cutAt;
  }

  get cut(): boolean {
    return this.changes >= this.#cutAt;
  }

  /** After a process was killed: nothing is lost, and it is cut off anew after so many changes more. */
  goOn(cutAfter: number): void {
    this.changes = 0;
    this.#cutAt = cutAfter;
  }

  /** What is on the disk when the power is back. `kept` says of each change that was not synced whether it was made. */
  afterPowerLoss(kept: () => boolean): LossyDisk {
    const copies = new Map<Node, Node>();
    const copy = (node: Node): Node => {
      const known = copies.get(node);
      if (known) return known;
      if (node.kind === 'file') {
        const whole = node.bytes !== node.synced && kept() ? node.bytes : node.synced;
        const bytes = whole === node.synced || kept() ? whole : whole.slice(0, whole.length >> 1);
        const made: FileNode = { kind: 'file', bytes, synced: bytes };
        copies.set(node, made);
        return made;
      }
      const names = new Map(node.synced);
      for (const change of node.changes) if (kept()) applied(names, change);
      const made = newFolder();
      copies.set(node, made);
      for (const [name, inside] of names) {
        made.names.set(name, copy(inside));
        made.synced.set(name, copy(inside));
      }
      return made;
    };
    const disk = new LossyDisk();
    disk.#root = copy(this.#root) as FolderNode;
    return disk;
  }

  async makeFolder(path: string): Promise<void> {
    let at = this.#root;
    for (const name of path.split('/')) {
      let next = at.names.get(name);
      if (!next) {
        next = newFolder();
        this.#change(at, [[name, next]]);
      }
      // As its contract says: the names of all that are made survive.
      this.#sync(at);
      at = next as FolderNode;
    }
  }

  async syncFolder(path: string): Promise<void> {
    this.#tick();
    this.#sync(this.#folder(path));
  }

  async writeStream(path: string): Promise<WriteStream> {
    const [folder, name] = this.#split(path);
    const partial = `${name}.partial`;
    const node: FileNode = { kind: 'file', bytes: new Uint8Array(), synced: new Uint8Array() };
    this.#change(folder, [[partial, node]]);
    return {
      write: async (bytes) => {
        this.#tick();
        const before = node.bytes;
        node.bytes = new Uint8Array(before.length + bytes.length);
        node.bytes.set(before);
        node.bytes.set(bytes, before.length);
      },
      commit: async () => {
        this.#tick();
        node.synced = node.bytes;
        this.#change(folder, [
          [partial, undefined],
          [name, node],
        ]);
      },
      abort: async () => {
        if (!this.cut) this.#change(folder, [[partial, undefined]]);
      },
    };
  }

  async makePartial(path: string): Promise<string> {
    await this.makeFolder(`${path}.partial`);
    return `${path}.partial`;
  }

  async removePartials(): Promise<void> {}

  async writeAtomic(path: string, bytes: Uint8Array | string): Promise<void> {
    const stream = await this.writeStream(path);
    await stream.write(typeof bytes === 'string' ? new TextEncoder().encode(bytes) : bytes);
    await stream.commit();
  }

  async rename(from: string, to: string): Promise<void> {
    const [folder, name] = this.#split(from);
    const [target, newName] = this.#split(to);
    const node = folder.names.get(name);
    if (!node || folder !== target || target.names.get(newName)?.kind === 'folder')
      throw new HoldfastError(`cannot rename ${from} to ${to}`);
    this.#change(folder, [
      [name, undefined],
      [newName, node],
    ]);
  }

  /** Name by name, from the innermost. */
  async remove(path: string): Promise<void> {
    const [folder, name] = this.#split(path);
    const node = folder.names.get(name);
    if (!node) return;
    if (node.kind === 'folder') for (const inside of [...node.names.keys()]) await this.remove(`${path}/${inside}`);
    this.#change(folder, [[name, undefined]]);
  }

  async read(path: string) {
    const node = this.#node(path);
    if (node?.kind !== 'file') throw new HoldfastError(`cannot read ${path}`);
    return node.bytes.slice();
  }

  async readRange(path: string, offset: number, bytes: number) {
    const all = await this.read(path);
    if (offset + bytes > all.length) throw new HoldfastError(`${path} ends at byte ${all.length}`);
    return all.slice(offset, offset + bytes);
  }

  async open(path: string): Promise<OpenFile> {
    const { length } = await this.read(path);
    return { bytes: length, readRange: (offset, bytes) => this.readRange(path, offset, bytes), close: async () => {} };
  }

  async stat(path: string) {
    const node = this.#node(path);
    if (node?.kind !== 'file') return node && { kind: 'folder' as const, bytes: 0 };
    return { kind: 'file' as const, bytes: node.bytes.length };
  }

  async list(path: string) {
    return [...this.#folder(path).names.keys()].sort();
  }

  async sha256(): Promise<Sha256> {
    const hash = createHash('sha256');
    return { update: (bytes) => void hash.update(bytes), hex: () => hash.digest('hex') };
  }

  #tick(): void {
    if (++this.changes >= this.#cutAt) throw new HoldfastError('the power is gone');
  }

  #change(folder: FolderNode, change: Change): void {
    this.#tick();
    applied(folder.names, change);
    folder.changes.push(change);
  }

  #sync(folder: FolderNode): void {
    for (const change of folder.changes) applied(folder.synced, change);
    folder.changes = [];
  }

  #node(path: string): Node | undefined {
    let at: Node | undefined = this.#root;
    for (const name of path.split('/')) at = at?.kind === 'folder' ? at.names.get(name) : undefined;
    return at;
  }

  #folder(path: string): FolderNode {
    const node = this.#node(path);
    if (node?.kind !== 'folder') throw new HoldfastError(`${path} is no folder`);
    return node;
  }

  #split(path: string): [folder: FolderNode, name: string] {
    const at = path.lastIndexOf('/');
    return [at < 0 ? this.#root : this.#folder(path.slice(0, at)), path.slice(at + 1)];
  }
}
