/** Which one state a node is shown in, with its word, and whether it counts as healthy. Pure. */

import type { NodeRow } from './feed';

export type StateName =
  | 'ready'
  | 'busy'
  | 'starting'
  | 'blocked'
  | 'owner'
  | 'idle'
  | 'suspended'
  | 'leaving'
  | 'cordoned'
  | 'suspected'
  | 'offline';

export interface NodeState {
  readonly name: StateName;
  /** One or two words, shown beside the icon. */
  readonly word: string;
  /** More, in words, where the word alone would leave a question; else empty. */
  readonly detail: string;
}

const HARVEST: Partial<Record<NodeRow['harvest'], NodeState>> = {
  owner: state('owner', 'in use', 'by its owner'),
  idle: state('idle', 'idle', 'not lent yet'),
  suspended: state('suspended', 'suspended', 'for its owner'),
  evicting: state('leaving', 'giving back', 'to its owner')
};

/** Return the state of `row`; what explains most wins. */
export function stateOf(row: NodeRow): NodeState {
  if (row.health === 'dead') {
    return state('offline', 'offline', row.reasons.filter(reason => reason !== 'is dead').join('; '));
  }
  if (row.health === 'suspected') {
    return state('suspected', 'no answer');
  }
  if (row.cordoned) {
    return row.draining ? state('leaving', 'draining') : state('cordoned', 'cordoned');
  }
  const harvest = HARVEST[row.harvest];
  if (harvest) {
    return harvest;
  }
  if (row.reasons.length > 0) {
    return state('blocked', 'paused', row.reasons.join('; '));
  }
  if (!row.worker) {
    return state('starting', 'starting');
  }
  return row.tasks ? state('busy', 'busy') : state('ready', 'ready');
}

function state(name: StateName, word: string, detail = ''): NodeState {
  return { name, word, detail };
}
