"""Programs that show a promise on real servers, at sizes that no test suite has time for; each ends with a verdict."""
