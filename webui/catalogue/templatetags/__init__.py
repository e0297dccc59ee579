"""How the catalogue's pages write things."""
