"""beamport: streams of a scientific instrument, live and recorded, as numpy arrays."""

from ._core import version

__all__ = ["__version__"]
__version__ = version()
