"""Other machines, by SSH: complete runs (`session`, `far_side`), and parts of a run (`machines`, `parts`)."""
