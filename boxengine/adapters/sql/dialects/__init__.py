"""Everything that differs from one database to another, one module each, behind ``BoxStatements``."""
