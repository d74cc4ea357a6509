"""From a bucket's lease to the outcomes of its items: the processor, the batches it sends, and what guards users' code."""
