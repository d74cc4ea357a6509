"""The package's version, in a module of its own: what shows it must not import all that the package offers."""

__version__ = "0.2.0"
