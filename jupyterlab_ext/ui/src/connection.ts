/** The WebSocket to the Jupyter server: open while the panel shows, opened again by itself when it breaks. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';

import { after, Mesh, Notice, NOTHING, read } from './feed';

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 5000;

/** What the panel shows, kept up to date from the feed while `open` was called and `close` was not. */
export class MeshModel {
  constructor(settings: ServerConnection.ISettings) {
    this._settings = settings;
  }

  /** Sent when `mesh` is another. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get mesh(): Mesh {
    return this._mesh;
  }

  /** Begin to follow the feed. */
  open(): void {
    if (!this._wanted) {
      this._wanted = true;
      this._pause = FIRST_PAUSE;
      this._connect();
    }
  }

  /** Stop following, at once. */
  close(): void {
    this._wanted = false;
    window.clearTimeout(this._timer);
    const socket = this._socket;
    this._socket = null;
    socket?.close();
  }

  private _connect(): void {
    const { wsUrl, token, appendToken, WebSocket } = this._settings;
    let url = URLExt.join(wsUrl, 'computemesh', 'feed');
    if (appendToken && token) {
      url += `?token=${encodeURIComponent(token)}`;
    }
    const socket = new WebSocket(url);
    this._socket = socket;
    socket.onmessage = event => {
      if (socket === this._socket) {
        this._pause = FIRST_PAUSE;
        this._hear(event.data as string);
      }
    };
    socket.onclose = () => {
      // A socket that was closed on purpose, or for which there is already another, is nobody's loss.
      if (socket === this._socket && this._wanted) {
        this._lost();
      }
    };
  }

  private _hear(text: string): void {
    try {
      this._set(after(this._mesh, read(text)));
    } catch (error) {
      this._set(after(this._mesh, serverNotice(`${String(error)}. Reload the page.`)));
    }
  }

  private _lost(): void {
    this._socket = null;
    this._set(after(this._mesh, serverNotice('The Jupyter server does not answer. Connecting again…')));
    this._timer = window.setTimeout(() => this._connect(), this._pause);
    this._pause = Math.min(LONGEST_PAUSE, this._pause * 2);
  }

  private _set(mesh: Mesh): void {
    this._mesh = mesh;
    this._changed.emit();
  }

  private readonly _settings: ServerConnection.ISettings;
  private readonly _changed = new Signal<this, void>(this);
  private _mesh: Mesh = NOTHING;
  private _socket: WebSocket | null = null;
  private _wanted = false;
  private _pause = FIRST_PAUSE;
  private _timer = 0;
}

function serverNotice(text: string): Notice {
  return { op: 'notice', kind: 'server', text };
}
