import assert from 'node:assert/strict';
import { test } from 'node:test';

import { after, Mesh, NOTHING, read } from './feed';
import { HEADLINE, row } from './samples.test';

const TWO: Mesh = after(NOTHING, {
  op: 'snapshot', version: 1, headline: HEADLINE, nodes: [row('desk'), row('rack')]
});

test('a snapshot replaces everything and ends a notice', () => {
  const mesh = after(TWO, { op: 'snapshot', version: 1, headline: HEADLINE, nodes: [row('lap')] });
  assert.deepEqual([...mesh.nodes.keys()], ['lap']);
  assert.equal(mesh.notice, null);
});

test('a delta changes only the rows it names, and the others stay the same objects', () => {
  const mesh = after(TWO, { op: 'delta', headline: null, nodes: [row('rack', { load: 90 })], gone: [] });
  assert.equal(mesh.nodes.get('rack')?.load, 90);
  assert.equal(mesh.nodes.get('desk'), TWO.nodes.get('desk'));
  assert.equal(mesh.headline, HEADLINE);
  assert.equal(TWO.nodes.get('rack')?.load, 10, 'what was shown before is left alone');
});

test('a delta adds and removes rows', () => {
  const mesh = after(TWO, { op: 'delta', headline: null, nodes: [row('lap')], gone: ['desk'] });
  assert.deepEqual([...mesh.nodes.keys()], ['rack', 'lap']);
});

test('a delta of the headline alone keeps the table as it is', () => {
  const headline = { ...HEADLINE, running: 3 };
  const mesh = after(TWO, { op: 'delta', headline, nodes: [], gone: [] });
  assert.equal(mesh.nodes, TWO.nodes);
  assert.equal(mesh.headline, headline);
});

test('a notice keeps what was last known, and the next message ends it', () => {
  const away = after(TWO, { op: 'notice', kind: 'unreachable', text: 'Nobody listens' });
  assert.equal(away.nodes, TWO.nodes);
  assert.equal(away.notice?.text, 'Nobody listens');
  const back = after(away, { op: 'snapshot', version: 1, headline: HEADLINE, nodes: [] });
  assert.equal(back.notice, null);
});

test('a message of another kind is refused by its name', () => {
  assert.throws(() => read('{"op":"nonsense"}'), /nonsense/);
  assert.throws(() => read('no json'));
});
