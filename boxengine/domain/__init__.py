"""Values and pure decisions that need only the standard library: boxes, items, jobs, outcomes, buckets, retries."""
