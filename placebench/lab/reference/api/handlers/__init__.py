"""The handlers of the API: each takes a call, with the names in its path, and returns the response.

Each module begins with the checks of its request bodies; the SQL is in `store`. The checks run in Placement's order,
since the first one that fails decides the status: usually the provider in the path, then the form of the body, then the
generation, then the values in the body.
"""
