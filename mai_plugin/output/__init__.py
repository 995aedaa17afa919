"""How anything is shown: tables, files and pictures, in one style."""
