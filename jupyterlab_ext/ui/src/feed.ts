/**
 * What the panel knows of the mesh, and how each message of the feed changes it. Pure: no browser, no JupyterLab.
 * The messages are those of computemesh/feed.py.
 */

/** One node, as the driver describes it for screens. Memory in bytes, loads in percent; null: nobody knows. */
export interface NodeRow {
  readonly name: string;
  readonly site: string;
  readonly pools: readonly string[];
  readonly health: 'alive' | 'suspected' | 'dead';
  readonly harvest: 'owner' | 'idle' | 'lending' | 'suspended' | 'evicting';
  readonly cordoned: boolean;
  readonly draining: boolean;
  readonly worker: boolean;
  readonly reasons: readonly string[];
  readonly cores: number;
  readonly ram: number;
  readonly ram_free: number | null;
  readonly gpus: readonly string[];
  readonly load: number | null;
  readonly gpu_load: number | null;
  readonly tasks: number | null;
}

/** The whole mesh in one line; cores, memory and GPUs are those of the healthy nodes. */
export interface Headline {
  readonly nodes: number;
  readonly healthy: number;
  readonly busy: number;
  readonly offline: number;
  readonly cores: number;
  readonly ram: number;
  readonly gpus: number;
  readonly running: number | null;
  readonly waiting: number | null;
}

export interface Snapshot {
  readonly op: 'snapshot';
  readonly version: number;
  readonly headline: Headline;
  readonly nodes: readonly NodeRow[];
}

export interface Delta {
  readonly op: 'delta';
  readonly headline: Headline | null;
  readonly nodes: readonly NodeRow[];
  readonly gone: readonly string[];
}

/** Why there is nothing to show just now, in words for the person. */
export interface Notice {
  readonly op: 'notice';
  readonly kind: NoticeKind;
  readonly text: string;
}

export type NoticeKind = 'connecting' | 'no-mesh' | 'unreachable' | 'refused' | 'server';
export type Message = Snapshot | Delta | Notice;

/** What the panel shows. With a notice, nodes and headline are the last that were known. */
export interface Mesh {
  readonly headline: Headline | null;
  readonly nodes: ReadonlyMap<string, NodeRow>;
  readonly notice: Notice | null;
}

export const NOTHING: Mesh = {
  headline: null,
  nodes: new Map(),
  notice: { op: 'notice', kind: 'connecting', text: 'Connecting to the mesh…' }
};

/** Return what `message` makes of `mesh`. Rows that it does not name stay the same objects. */
export function after(mesh: Mesh, message: Message): Mesh {
  switch (message.op) {
    case 'snapshot':
      return {
        headline: message.headline,
        nodes: new Map(message.nodes.map(row => [row.name, row])),
        notice: null
      };
    case 'delta': {
      const headline = message.headline ?? mesh.headline;
      if (message.nodes.length === 0 && message.gone.length === 0) {
        return { headline, nodes: mesh.nodes, notice: null };
      }
      const nodes = new Map(mesh.nodes);
      message.gone.forEach(name => nodes.delete(name));
      message.nodes.forEach(row => nodes.set(row.name, row));
      return { headline, nodes, notice: null };
    }
    case 'notice':
      return { ...mesh, notice: message };
  }
}

/** Read one message. Throws an Error when it is none of those above. */
export function read(text: string): Message {
  const message = JSON.parse(text) as Message;
  if (!['snapshot', 'delta', 'notice'].includes(message.op)) {
    throw new Error(`The feed sent a message that this panel does not know: ${String(message.op)}`);
  }
  return message;
}
