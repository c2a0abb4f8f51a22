"""What every long computation needs: workspaces, rows, progress, processes."""
