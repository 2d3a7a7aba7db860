"""Code that locust runs: users, schedules, sample files and the log of writes."""
