"""Network emulation: a TCP proxy that counts bytes and round trips and adds latency and a bandwidth limit."""
