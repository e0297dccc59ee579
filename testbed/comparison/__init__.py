"""Finished runs side by side: what differs in what was asked, what came of it, and whether repeats bear that out.

Knows experiments, summaries and event logs; no database, no page. `looplane compare` and the console's compare pages
both read from here.
"""
