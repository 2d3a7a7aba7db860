"""Processes that placebench starts: supervised children, PostgreSQL, application servers, network emulation."""
