"""The SQL of the API's nouns but for the candidates: one module a noun, one function a statement or a short story.

Each function takes a connection whose transaction is the caller's (`database.py` says which locks hold what).
"""
