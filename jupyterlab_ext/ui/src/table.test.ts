import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { NodeRow } from './feed';
import { row } from './samples.test';
import { stateOf } from './state';
import { BY_NAME, clicked, kept, matches, ordered, rowsInView } from './table';
import { bytes, count, many, percent, spoken } from './words';

const named = (...rows: NodeRow[]) => new Map(rows.map(each => [each.name, each]));

test('names sort as people count', () => {
  assert.deepEqual(ordered([row('node-10'), row('node-2'), row('Node-1')], BY_NAME), ['Node-1', 'node-2', 'node-10']);
});

test('a heading sorts by its column, values from the largest, and turns round when clicked again', () => {
  assert.deepEqual(clicked(BY_NAME, 'load'), { column: 'load', descending: true });
  assert.deepEqual(clicked({ column: 'load', descending: true }, 'load'), { column: 'load', descending: false });
  assert.deepEqual(clicked(BY_NAME, 'name'), { column: 'name', descending: true });
});

test('unknown values come last either way', () => {
  const rows = [row('a', { load: null }), row('b', { load: 5 }), row('c', { load: 50 })];
  assert.deepEqual(ordered(rows, { column: 'load', descending: true }), ['c', 'b', 'a']);
  assert.deepEqual(ordered(rows, { column: 'load', descending: false }), ['b', 'c', 'a']);
});

test('rows sorted by load stay where they are while the load moves; new nodes come at the end', () => {
  const sort = { column: 'load', descending: true } as const;
  const now = named(row('a', { load: 99 }), row('b', { load: 1 }), row('new', { load: 50 }));
  assert.deepEqual(kept(['b', 'gone', 'a'], now, sort), ['b', 'a', 'new']);
});

test('rows sorted by name take new nodes in at their place', () => {
  assert.deepEqual(kept(['a', 'c'], named(row('a'), row('c'), row('b')), BY_NAME), ['a', 'b', 'c']);
});

test('the filter finds all of its words in name, site, pools, GPUs and state', () => {
  const rack = row('rack-7', { site: 'london/floor2', pools: ['night'], gpus: ['H200'], cordoned: true });
  for (const filter of ['', '  ', 'RACK', 'floor2 night', 'cordoned', 'h200 london']) {
    assert.ok(matches(rack, filter), filter);
  }
  assert.ok(!matches(rack, 'rack offline'));
});

test('only the rows in view are drawn, with some to spare above and below', () => {
  assert.deepEqual(rowsInView(0, 600, 60, 2000, 5), [0, 15]);
  assert.deepEqual(rowsInView(6000, 600, 60, 2000, 5), [95, 115]);
  assert.deepEqual(rowsInView(1e9, 600, 60, 2000, 5), [1980, 2000], 'scrolled past the end, after the filter shortened it');
  assert.deepEqual(rowsInView(0, 600, 60, 3, 5), [0, 3]);
});

const STATES: [Partial<NodeRow>, string, string][] = [
  [{}, 'ready', 'ready'],
  [{ tasks: 2 }, 'busy', 'busy'],
  [{ tasks: null }, 'ready', 'ready'],
  [{ worker: false }, 'starting', 'starting'],
  [{ health: 'dead', cordoned: true, reasons: ['has left'] }, 'offline', 'offline'],
  [{ health: 'suspected', tasks: 2, reasons: ['is suspected'] }, 'suspected', 'no answer'],
  [{ cordoned: true, tasks: 1, reasons: ['is cordoned'] }, 'cordoned', 'cordoned'],
  [{ cordoned: true, draining: true }, 'leaving', 'draining'],
  [{ harvest: 'owner', reasons: ['is in use by its owner'] }, 'owner', 'in use'],
  [{ harvest: 'idle' }, 'idle', 'idle'],
  [{ harvest: 'suspended' }, 'suspended', 'suspended'],
  [{ harvest: 'evicting' }, 'leaving', 'giving back'],
  [{ reasons: ['is too hot: 95 °C, above 90 °C'] }, 'blocked', 'paused']
];

for (const [more, name, word] of STATES) {
  test(`a node that has ${JSON.stringify(more)} is shown as ${word}`, () => {
    const state = stateOf(row('desk', more));
    assert.equal(state.name, name);
    assert.equal(state.word, word);
  });
}

test('why a node is offline or takes no tasks stands beside it', () => {
  assert.equal(stateOf(row('desk', { health: 'dead', reasons: ['has left'] })).detail, 'has left');
  assert.equal(stateOf(row('desk', { health: 'dead', reasons: ['is dead'] })).detail, '');
  assert.match(stateOf(row('desk', { reasons: ['runs on battery at 20 %', 'is too hot'] })).detail, /20 %; is too hot/);
});

test('numbers read as people say them', () => {
  assert.deepEqual([0, 999, 1000, 16e9, 1.536e12, 2e18].map(bytes), ['0 B', '999 B', '1 kB', '16 GB', '1.54 TB', '2000 PB']);
  assert.deepEqual([null, 0, 2.5, 12400].map(count), ['–', '0', '2.5', '12,400']);
  assert.equal(many(1, 'node'), '1 node');
  assert.equal(many(0, 'node'), '0 nodes');
  assert.deepEqual([-1, 49.6, 180].map(percent), [0, 50, 100]);
  const headline = { nodes: 3, healthy: 2, busy: 1, offline: 1, cores: 8, ram: 1, gpus: 0, running: 1, waiting: 0 };
  assert.equal(spoken(headline), '3 nodes: 2 healthy, 1 busy, 1 offline');
});
