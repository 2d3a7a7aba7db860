"""Series of what was measured while something ran: the exact samples of a load run.

Its parts are `samples.Samples` (what is kept of each request), `arrivals.arrivals` (the schedule of an open load) and
`load_session.LoadSession` (both inside a locust process; the only part that imports locust).
"""
