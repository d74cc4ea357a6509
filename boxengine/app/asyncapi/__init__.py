"""Describes what a configuration sends and receives as an AsyncAPI 3 document, and compares two such documents."""

from boxengine.app.asyncapi.compatibility import breaking_changes as breaking_changes
from boxengine.app.asyncapi.document import document as document
