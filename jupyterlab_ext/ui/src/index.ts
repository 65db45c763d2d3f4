/** The mesh in JupyterLab: a panel in the left sidebar and the command that shows it. */

import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';

import { MeshModel } from './connection';
import { meshIcon } from './icons';
import { MeshPanel } from './panel';

namespace CommandIDs {
  export const show = 'computemesh:show';
}

const plugin: JupyterFrontEndPlugin<void> = {
  id: 'computemesh-lab:mesh',
  description: 'The nodes of the mesh, live, in the sidebar.',
  autoStart: true,
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (app: JupyterFrontEnd, restorer: ILayoutRestorer | null, palette: ICommandPalette | null) => {
    const panel = new MeshPanel(new MeshModel(app.serviceManager.serverSettings));
    app.shell.add(panel, 'left', { rank: 350, type: 'Mesh' });
    restorer?.add(panel, panel.id);

    app.commands.addCommand(CommandIDs.show, {
      label: 'Show the mesh',
      caption: 'Show the nodes of the mesh in the sidebar',
      icon: meshIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => app.shell.activateById(panel.id)
    });
    palette?.addItem({ command: CommandIDs.show, category: 'Mesh' });
  }
};

export default plugin;
