"""Webhooks (extra ``boxengine[http]``): ``transport`` sends, ``guard`` keeps it off private networks, ``signature`` signs."""
