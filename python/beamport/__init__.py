"""beamport: streams of a scientific instrument, live and recorded, as numpy arrays.

>>> import beamport, os
>>> data = beamport.open(os.environ["BEAMPORT_DATA"])     # a data folder, like "beamport-data/amor"
>>> for m in data["detector"].read():                     # since="-10 s", follow=True, ...
...     print(m.sequence, m["pixel_id"])                  # a read-only view into stream memory, no copy
0 [3 1 2]
1 [4 2 3]
2 [5 3 4]
"""

from ._context import slot
from ._core import Batch, Message, Stream, message, version
from ._data import Data, open
from ._errors import Error
from ._instrument import Instrument, run
from ._result import result
from ._run import Run
from ._worker import finder, statistics, worker

__all__ = [
    "Batch", "Data", "Error", "Instrument", "Message", "Run", "Stream", "finder", "message", "open", "result", "run",
    "slot", "statistics", "worker",
]  # fmt: skip
__version__ = version()
