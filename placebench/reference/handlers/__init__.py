"""One module a noun of the API; a handler takes a call, with the names in its path, and gives the response.

What a body may hold stands at the top of the module; the SQL stands in the module of the same name in `store`.
What can be judged without the database is judged first.
"""
