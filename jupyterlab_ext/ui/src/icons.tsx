/** The signs of states: each a shape of its own, so that colour is never the only sign. */

import { LabIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import type { StateName } from './state';

/** The sidebar's icon: three machines in one mesh. */
export const meshIcon = new LabIcon({
  name: 'computemesh-lab:mesh',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="none" stroke="#616161" stroke-width="2"><path d="M12 7.5 6 16.5h12z"/></g>
  <g class="jp-icon3" fill="#616161"><circle cx="12" cy="5.5" r="3.5"/><circle cx="5" cy="18" r="3.5"/><circle cx="19" cy="18" r="3.5"/></g>
</svg>`
});

const SHAPES: Record<StateName, React.ReactElement> = {
  ready: <path d="M3.5 8.5l3 3 6-7" />,
  busy: <path className="jp-Mesh-filled" d="M5 3.2v9.6L13 8z" />,
  starting: <path d="M4.5 3h7M4.5 13h7M5 3c0 5 6 5 6 10M11 3c0 5-6 5-6 10" />,
  blocked: <path d="M8 2.5l6 11H2zM8 7v3M8 11.4v.6" />,
  owner: <path d="M8 8a2.6 2.6 0 100-5.2A2.6 2.6 0 008 8zM3 13.6c.6-4.6 9.4-4.6 10 0" />,
  idle: <path d="M12.8 9.800A5.4 5.4 0 016.2 3.200a5.4 5.4 0 106.6 6.600z" />,
  suspended: <path d="M5.5 3.500v9M10.5 3.500v9" />,
  leaving: <path d="M2.5 8h9M8 4l4 4-4 4" />,
  cordoned: <path d="M8 13.500a5.5 5.5 0 100-11 5.5 5.5 0 000 11zM4.2 11.800l7.6-7.6" />,
  suspected: <path d="M5.5 6c0-3.3 5-3.3 5 0 0 2-2.5 2-2.5 4M8 12.300v.7" />,
  offline: <path d="M4 4l8 8M12 4l-8 8" />
};

/** The sign of one state; its word stands beside it, so it says nothing to a screen reader. */
export function StateIcon(props: { state: StateName }): React.ReactElement {
  return (
    <svg className={`jp-Mesh-sign jp-Mesh-is-${props.state}`} viewBox="0 0 16 16" aria-hidden="true">
      {SHAPES[props.state]}
    </svg>
  );
}
