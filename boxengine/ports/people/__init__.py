"""Questions and actions of people, on the command line and in the console. Never in the path of a delivery.

``items`` (select and change them), ``inspection`` and ``jobs`` (quick answers about rows), ``log`` (items that stand in a log
alone), ``census`` (counts), ``attempts``, ``history`` (charts), ``trail`` (who did what), ``checkup`` (what is wrong with a
server), ``audit`` (whether everything arrived, in order).
"""
