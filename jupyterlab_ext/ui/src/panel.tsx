/** The sidebar's panel: it follows the feed while it can be seen, and does nothing while it cannot. */

import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import * as React from 'react';

import type { MeshModel } from './connection';
import type { Mesh } from './feed';
import { Head, NoticeBox } from './head';
import { meshIcon } from './icons';
import { Nodes } from './nodes';
import { many, spoken } from './words';

const PANEL_ID = 'computemesh-mesh';

export class MeshPanel extends ReactWidget {
  constructor(model: MeshModel) {
    super();
    this._model = model;
    this.id = PANEL_ID;
    this.title.icon = meshIcon;
    this.title.caption = 'Mesh';
    this.addClass('jp-Mesh');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Mesh');
  }

  dispose(): void {
    this._model.close();
    super.dispose();
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this._model.open();
  }

  protected onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this._model.close();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    if (this.isVisible) {
      this._model.open();
    }
  }

  protected onBeforeDetach(msg: Message): void {
    super.onBeforeDetach(msg);
    this._model.close();
  }

  protected render(): React.ReactElement {
    return <UseSignal signal={this._model.changed}>{() => <Body mesh={this._model.mesh} />}</UseSignal>;
  }

  private readonly _model: MeshModel;
}

function Body(props: { mesh: Mesh }): React.ReactElement {
  const { headline, nodes, notice } = props.mesh;
  return (
    <>
      <div className="jp-Mesh-title">
        <h2>Mesh</h2>
        {headline ? <span className="jp-Mesh-size">{many(headline.nodes, 'node')}</span> : null}
        <span className={`jp-Mesh-live ${notice ? 'jp-Mesh-off' : ''}`}>{notice ? 'not live' : 'live'}</span>
      </div>
      <p className="jp-Mesh-spoken" role="status" aria-live="polite">
        {headline && !notice ? spoken(headline) : ''}
      </p>
      {notice ? <NoticeBox notice={notice} known={headline !== null} /> : null}
      {headline ? (
        <div className={`jp-Mesh-body ${notice ? 'jp-Mesh-old' : ''}`}>
          <Head headline={headline} />
          <Nodes nodes={nodes} />
        </div>
      ) : null}
    </>
  );
}
