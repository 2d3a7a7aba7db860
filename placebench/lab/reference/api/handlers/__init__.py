"""The handlers of the API: each takes a call, with the names in its path, and returns the response.

What a body may hold is at the top of each module; the SQL is in `store`. The order of the checks is Placement's, since
the first that fails decides the status: mostly the provider in the path, then the form of the body, then the
generation, then what the body means.
"""
