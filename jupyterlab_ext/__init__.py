"""The mesh inside JupyterLab: the command that opens it now, the sidebar and its server extension later."""
