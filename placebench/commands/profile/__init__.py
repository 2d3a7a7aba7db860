"""The commands of `placebench profile`."""
