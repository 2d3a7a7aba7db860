"""The reference service on several hosts with database replicas, and checks of its consistency."""
