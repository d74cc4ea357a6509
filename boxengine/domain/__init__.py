"""Values and pure decisions of the standard library alone: boxes, items, jobs, outcomes, buckets, retries."""
