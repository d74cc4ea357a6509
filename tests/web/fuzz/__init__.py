"""The console's API under requests that schemathesis makes of its OpenAPI document (``make console-fuzz``)."""
