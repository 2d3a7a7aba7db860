"""Code that runs inside locust: users, schedules, sample files and the log of writes."""
