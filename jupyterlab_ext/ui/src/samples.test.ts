/** Rows and a headline for the tests. */

import type { Headline, NodeRow } from './feed';

export const HEADLINE: Headline = {
  nodes: 2, healthy: 2, busy: 0, offline: 0, cores: 8, ram: 16e9, gpus: 0, running: 0, waiting: 0
};

export function row(name: string, more: Partial<NodeRow> = {}): NodeRow {
  return {
    name, site: '', pools: [], health: 'alive', harvest: 'lending', cordoned: false, draining: false, worker: true,
    reasons: [], cores: 4, ram: 8e9, ram_free: 4e9, gpus: [], load: 10, gpu_load: null, tasks: 0, ...more
  };
}
