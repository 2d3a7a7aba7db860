"""Continuous integration: the job that compares a change with its base, and what the CI service is shown of it.

`project` finds out how the project in a folder is installed, `job_files` writes the job, `services` knows GitHub and
GitLab, and `annotations` names the lines that a run should be shown next to.
"""
