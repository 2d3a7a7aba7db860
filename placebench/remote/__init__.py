"""Other machines, by SSH: a run there (`session`, `far_side`), and parts that stand there (`machines`, `parts`)."""
