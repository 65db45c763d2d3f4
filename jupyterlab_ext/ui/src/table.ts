/** Which rows the table shows and in which order. Pure. */

import type { NodeRow } from './feed';
import { stateOf } from './state';

export type Column = 'name' | 'load' | 'tasks';

export interface Sort {
  readonly column: Column;
  readonly descending: boolean;
}

export const BY_NAME: Sort = { column: 'name', descending: false };

const natural = new Intl.Collator('en', { numeric: true, sensitivity: 'base' });

/** Compare names as people count: node-2 before node-10. */
export function byName(one: NodeRow, other: NodeRow): number {
  return natural.compare(one.name, other.name) || (one.name < other.name ? -1 : one.name > other.name ? 1 : 0);
}

/** Return the sort that a click on a column's heading means: another column, or the same the other way round. */
export function clicked(sort: Sort, column: Column): Sort {
  if (sort.column === column) {
    return { column, descending: !sort.descending };
  }
  return { column, descending: column !== 'name' };
}

/** Whether `row` has every word of `filter` in its name, site, pools, GPUs or state. */
export function matches(row: NodeRow, filter: string): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    return true;
  }
  const state = stateOf(row);
  const text = [row.name, row.site, ...row.pools, ...row.gpus, state.word, state.detail].join(' ').toLowerCase();
  return words.every(word => text.includes(word));
}

/** Return the names of `rows` sorted; nodes of which the value is not known come last either way. */
export function ordered(rows: Iterable<NodeRow>, sort: Sort): string[] {
  const list = [...rows].sort(byName);
  const sign = sort.descending ? -1 : 1;
  if (sort.column === 'name') {
    return (sort.descending ? list.reverse() : list).map(row => row.name);
  }
  const column = sort.column;
  list.sort((one, other) => {
    const [a, b] = [one[column], other[column]];
    if (a === null || b === null) {
      return Number(a === null) - Number(b === null);
    }
    return sign * (a - b);
  });
  return list.map(row => row.name);
}

/**
 * Return the order to show now. By name it is always right; by a value that moves, rows keep their places until the
 * person sorts again, so that nothing jumps: nodes that are new come at the end.
 */
export function kept(before: readonly string[], nodes: ReadonlyMap<string, NodeRow>, sort: Sort): string[] {
  if (sort.column === 'name') {
    return ordered(nodes.values(), sort);
  }
  const known = new Set(before);
  const added = [...nodes.values()].filter(row => !known.has(row.name));
  return [...before.filter(name => nodes.has(name)), ...ordered(added, sort)];
}

/** Return the first row to draw and the one after the last, `spare` more on both sides than can be seen. In pixels. */
export function rowsInView(
  scrolled: number,
  height: number,
  rowHeight: number,
  rows: number,
  spare: number
): [number, number] {
  const seen = Math.ceil(height / rowHeight);
  const top = Math.max(0, Math.min(Math.floor(scrolled / rowHeight), rows - seen - spare));
  return [Math.max(0, top - spare), Math.min(rows, top + seen + spare)];
}
