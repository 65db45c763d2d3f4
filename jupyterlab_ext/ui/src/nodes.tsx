/** The nodes as a table, live: rows change where they stand. */

import * as React from 'react';

import type { NodeRow } from './feed';
import { StateIcon } from './icons';
import { NodeState, stateOf } from './state';
import { BY_NAME, clicked, Column, kept, matches, ordered, rowsInView, Sort } from './table';
import { count, many, percent } from './words';

/** The filter box and the table below it. */
export function Nodes(props: { nodes: ReadonlyMap<string, NodeRow> }): React.ReactElement {
  const { nodes } = props;
  const [filter, setFilter] = React.useState('');
  const [sort, setSort] = React.useState<Sort>(BY_NAME);
  const order = React.useRef<string[]>([]);
  order.current = kept(order.current, nodes, sort);
  const onSort = (column: Column) => {
    const next = clicked(sort, column);
    order.current = ordered(nodes.values(), next);
    setSort(next);
  };
  const rows = order.current
    .map(name => nodes.get(name))
    .filter((row): row is NodeRow => row !== undefined && matches(row, filter));
  const box = React.useRef<HTMLDivElement>(null);
  const [first, last] = useView(box, rows.length);
  return (
    <>
      <Filter value={filter} onChange={setFilter} shown={rows.length} all={nodes.size} />
      <div className="jp-Mesh-scroll" role="region" aria-label="Nodes" tabIndex={0} ref={box}>
        <table className="jp-Mesh-table" aria-rowcount={rows.length + 1}>
          <thead>
            <tr aria-rowindex={1}>
              <Heading column="name" text="Node" sort={sort} onSort={onSort} />
              <Heading column="load" text="Load" sort={sort} onSort={onSort} />
              <Heading column="tasks" text="Tasks" sort={sort} onSort={onSort} />
            </tr>
          </thead>
          <tbody>
            <Space rows={first} />
            {rows.slice(first, last).map((row, index) => (
              <Row key={row.name} row={row} index={first + index + 2} />
            ))}
            <Space rows={rows.length - last} />
          </tbody>
        </table>
        {rows.length === 0 ? <Empty filter={filter} /> : null}
      </div>
    </>
  );
}

/** Height of a row in pixels, as the style sheet sets it: all the same, so that those out of view need not be drawn. */
const ROW_HEIGHT = 62;
const SPARE_ROWS = 10;

/** Return the first row to draw and the one after the last, as `box` is scrolled. */
function useView(box: React.RefObject<HTMLDivElement>, rows: number): [number, number] {
  const [view, setView] = React.useState<[number, number]>([0, 0]);
  const look = React.useCallback(() => {
    const { scrollTop, clientHeight } = box.current ?? { scrollTop: 0, clientHeight: 0 };
    const next = rowsInView(scrollTop, clientHeight, ROW_HEIGHT, rows, SPARE_ROWS);
    setView(now => (now[0] === next[0] && now[1] === next[1] ? now : next));
  }, [box, rows]);
  React.useLayoutEffect(() => {
    look();
    const element = box.current;
    const resized = new ResizeObserver(look);
    element?.addEventListener('scroll', look, { passive: true });
    if (element) {
      resized.observe(element);
    }
    return () => {
      element?.removeEventListener('scroll', look);
      resized.disconnect();
    };
  }, [box, look]);
  return view;
}

/** The room that rows out of view would take. */
function Space(props: { rows: number }): React.ReactElement | null {
  if (props.rows <= 0) {
    return null;
  }
  return (
    <tr aria-hidden="true">
      <td colSpan={3} className="jp-Mesh-space" style={{ height: props.rows * ROW_HEIGHT }} />
    </tr>
  );
}

function Filter(props: {
  value: string;
  onChange: (value: string) => void;
  shown: number;
  all: number;
}): React.ReactElement {
  return (
    <div className="jp-Mesh-filter">
      <input
        type="search"
        className="jp-mod-styled"
        placeholder="Filter nodes"
        aria-label="Filter nodes by name, site, pool, GPU or state"
        value={props.value}
        onChange={event => props.onChange(event.target.value)}
        onKeyDown={event => {
          if (event.key === 'Escape') {
            props.onChange('');
          }
        }}
      />
      {props.value.trim() ? (
        <span role="status" className="jp-Mesh-found">{`${count(props.shown)} of ${many(props.all, 'node')}`}</span>
      ) : null}
    </div>
  );
}

function Heading(props: {
  column: Column;
  text: string;
  sort: Sort;
  onSort: (column: Column) => void;
}): React.ReactElement {
  const sorted = props.sort.column === props.column;
  const direction = props.sort.descending ? 'descending' : 'ascending';
  return (
    <th scope="col" aria-sort={sorted ? direction : 'none'} className={`jp-Mesh-col-${props.column}`}>
      <button type="button" onClick={() => props.onSort(props.column)}>
        {props.text}{' '}
        <span aria-hidden="true" className="jp-Mesh-arrow">
          {sorted ? (props.sort.descending ? '▾' : '▴') : ''}
        </span>
      </button>
    </th>
  );
}

/** One node; drawn anew only when the feed sent it anew. */
const Row = React.memo(function Row(props: { row: NodeRow; index: number }): React.ReactElement {
  const { row } = props;
  const state = stateOf(row);
  const shown = row.health !== 'dead';
  return (
    <tr className={`jp-Mesh-row ${shown ? '' : 'jp-Mesh-away'}`} aria-rowindex={props.index}>
      <th scope="row">
        <span className="jp-Mesh-name" title={row.name}>
          {row.name}
        </span>
        <About row={row} state={state} />
      </th>
      <td>
        <Load load={shown ? row.load : null} what="CPU" node={row.name} />
        {shown && row.gpu_load !== null ? <Load load={row.gpu_load} what="GPU" node={row.name} /> : null}
      </td>
      <td className="jp-Mesh-tasks">{shown ? count(row.tasks) : '–'}</td>
    </tr>
  );
});

function About(props: { row: NodeRow; state: NodeState }): React.ReactElement {
  const { row, state } = props;
  const size = `${many(row.cores, 'core')}${row.gpus.length ? `, ${many(row.gpus.length, 'GPU')}` : ''}`;
  const more = [state.detail, row.site, size].filter(Boolean).join(' · ');
  return (
    <>
      <span className={`jp-Mesh-state jp-Mesh-text-${state.name}`}>
        <StateIcon state={state.name} />
        {state.word}
      </span>
      <span className="jp-Mesh-more" title={[more, ...row.pools].join(' · ')}>
        {more}
      </span>
    </>
  );
}

function Load(props: { load: number | null; what: 'CPU' | 'GPU'; node: string }): React.ReactElement {
  if (props.load === null) {
    return <span className="jp-Mesh-unknown">–</span>;
  }
  const value = percent(props.load);
  return (
    <span className="jp-Mesh-load">
      <span
        className={`jp-Mesh-bar ${value >= 90 ? 'jp-Mesh-full' : ''} jp-Mesh-${props.what}`}
        role="meter"
        aria-label={`${props.what} load of ${props.node}`}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={value}
      >
        <span style={{ transform: `scaleX(${value / 100})` }} />
      </span>
      <span aria-hidden="true" title={`${props.what} load`}>{`${value} %`}</span>
    </span>
  );
}

function Empty(props: { filter: string }): React.ReactElement {
  if (props.filter.trim()) {
    return <p className="jp-Mesh-empty">{`No node matches “${props.filter.trim()}”. Escape clears the filter.`}</p>;
  }
  return (
    <div className="jp-Mesh-empty">
      <p>No node has joined the mesh yet.</p>
      <p>
        On the driver, <code>mesh token create</code> prints the command that joins a machine.
      </p>
    </div>
  );
}
