"""Receivers that are away: ``breaker`` (one circuit), ``circuits`` (those of a box), ``detour`` (past the items that wait)."""
