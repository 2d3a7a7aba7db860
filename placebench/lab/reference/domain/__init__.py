"""What a request for candidates and its problems are, whichever way it is served."""
