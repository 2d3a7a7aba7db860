"""One module a noun of the API; a handler takes a call, with the names in its path, and gives the response.

What a body may hold stands at the top of the module; the SQL stands in the module of the same name in `store`.
The order of the checks is Placement's, since the first that fails decides the status: mostly the provider in the path,
then the form of the body, then the generation, then what the body means.
"""
