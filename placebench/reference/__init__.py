"""The former place of `placebench.lab.reference`, kept until 0.4 for server configurations that name its modules."""
