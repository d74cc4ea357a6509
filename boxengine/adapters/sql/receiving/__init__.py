"""An inbox stores each received message once.

``inbox`` opens the transaction: ``inbox_transaction`` over a table, ``log_inbox`` over a log.
"""
