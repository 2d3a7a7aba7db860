"""The former place of `placebench.lab.reference`: server configurations that name its application still work."""
