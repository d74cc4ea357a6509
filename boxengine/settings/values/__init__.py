"""Types of single values: what may stand in the file, what becomes of it, and how an editor's schema says so.

Every parser takes text as well as the type itself, since ``${NAME}`` always yields text. Messages begin with
``expected``; who reports them adds what was found.
"""
