/** Numbers as people read them. Pure. */

import type { Headline } from './feed';

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** Return bytes as people say them, such as "16 GB"; the same as the core's `in_words`. */
export function bytes(amount: number): string {
  let unit = 0;
  while (amount >= 1000 && unit < UNITS.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  return `${Number(amount.toPrecision(3))} ${UNITS[unit]}`;
}

/** Return a count with thin separators, such as "12,400"; a dash when nobody knows. */
export function count(value: number | null): string {
  return value === null ? '–' : Number(value.toFixed(1)).toLocaleString('en');
}

/** Return "1 node", "2 nodes". */
export function many(value: number, one: string, more = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : more}`;
}

/** Return a load as a whole percentage within its bar. */
export function percent(load: number): number {
  return Math.max(0, Math.min(100, Math.round(load)));
}

/** Return what a screen reader is told when the mesh changes: only what is worth an interruption. */
export function spoken(headline: Headline): string {
  return `${many(headline.nodes, 'node')}: ${headline.healthy} healthy, ${headline.busy} busy, ${headline.offline} offline`;
}
