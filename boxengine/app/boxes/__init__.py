"""A loaded configuration, as applications use it.

``creating``: the functions that write items and jobs. ``boxes``: ``Boxes``, which makes their creators. ``loading``: reads
the configuration. ``default``: the one that the module-level functions share.
"""

from boxengine.app.boxes.boxes import Boxes
from boxengine.app.boxes.loading import load, load_for_worker

__all__ = ["Boxes", "load", "load_for_worker"]
