/** The head of the panel: the mesh in one line, and what is wrong when it cannot be seen. */

import * as React from 'react';

import type { Headline, Notice } from './feed';
import { StateIcon } from './icons';
import type { StateName } from './state';
import { bytes, count, many } from './words';

/** The mesh's size and what it does now. */
export function Head(props: { headline: Headline }): React.ReactElement {
  const { headline } = props;
  return (
    <div className="jp-Mesh-head">
      <Shares headline={headline} />
      <dl className="jp-Mesh-figures">
        <Figure name={headline.cores === 1 ? 'core' : 'cores'} value={count(headline.cores)} />
        <Figure name="memory" value={bytes(headline.ram)} />
        <Figure name={headline.gpus === 1 ? 'GPU' : 'GPUs'} value={count(headline.gpus)} />
        <Figure name="running" value={count(headline.running)} />
      </dl>
      {headline.waiting ? (
        <p className="jp-Mesh-waiting">{`${many(headline.waiting, 'task')} waiting for a node`}</p>
      ) : null}
    </div>
  );
}

function Figure(props: { name: string; value: string }): React.ReactElement {
  return (
    <div className="jp-Mesh-figure">
      <dt>{props.name}</dt>
      <dd>{props.value}</dd>
    </div>
  );
}

/** The nodes as one bar of three shares, with a legend that says the same in words. */
function Shares(props: { headline: Headline }): React.ReactElement {
  const { healthy, busy, offline } = props.headline;
  const shares: [StateName, number, string][] = [
    ['ready', healthy, 'healthy'],
    ['busy', busy, 'busy'],
    ['offline', offline, 'offline']
  ];
  const widths: Partial<Record<StateName, number>> = { ready: healthy - busy, busy, offline };
  return (
    <div>
      <div className="jp-Mesh-shares" aria-hidden="true">
        {shares.map(([state]) => (
          <span key={state} className={`jp-Mesh-fill-${state}`} style={{ flexGrow: widths[state] ?? 0 }} />
        ))}
      </div>
      <div className="jp-Mesh-legend">
        {shares.map(([state, amount, word]) => (
          <span key={state} className={amount ? '' : 'jp-Mesh-none'}>
            <StateIcon state={state} />
            {`${count(amount)} ${word}`}
          </span>
        ))}
      </div>
    </div>
  );
}

const TITLES: Record<Notice['kind'], string> = {
  connecting: 'Connecting…',
  'no-mesh': 'No mesh here yet',
  unreachable: 'The driver is not reachable',
  refused: 'The driver said no',
  server: 'The Jupyter server is not reachable'
};

/** Why the mesh cannot be seen just now, with commands shown as such. */
export function NoticeBox(props: { notice: Notice; known: boolean }): React.ReactElement {
  const { notice, known } = props;
  if (notice.kind === 'connecting') {
    return <p className="jp-Mesh-connecting">{notice.text}</p>;
  }
  return (
    <div className={`jp-Mesh-notice ${notice.kind === 'no-mesh' ? '' : 'jp-Mesh-warning'}`} role="alert">
      <strong>
        <StateIcon state={notice.kind === 'no-mesh' ? 'idle' : 'blocked'} />
        {TITLES[notice.kind]}
      </strong>
      <p>
        {notice.text.split('`').map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}
      </p>
      {known ? <p className="jp-Mesh-stale">Below is what was last known.</p> : null}
    </div>
  );
}
