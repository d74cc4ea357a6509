"""boxengine inside other frameworks: SQLAlchemy events, Alembic and Django, one module or package each."""
