"""Continuous integration: the job that compares a change with its base, and what the CI service is shown of it.

`project` finds out how the project in a folder is installed, `services` writes the job and knows what GitHub and
GitLab read, and `annotations` names the lines that a run should be shown next to.
"""
