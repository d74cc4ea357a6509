"""Long jobs: ``connecting`` (their connections), ``loops`` (what a worker runs for them), ``process`` and ``processes``
(``executor: process``), ``contracts`` (the codecs of their arguments), ``office`` (what people and programs ask and order).

A worker without job boxes imports none of it.
"""
