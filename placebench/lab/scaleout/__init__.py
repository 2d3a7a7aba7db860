"""Several hosts and replicas of the reference service, and checks of what they responded."""
