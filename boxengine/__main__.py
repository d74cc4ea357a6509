"""``python -m boxengine`` is the same as ``boxengine``."""

from boxengine.cli.main import run

if __name__ == "__main__":
    run()
