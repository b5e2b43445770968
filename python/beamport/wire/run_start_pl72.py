"""`pl72`: start of a run, for the ESS file writer."""

from __future__ import annotations

import time
from collections import namedtuple
from datetime import datetime
from typing import NamedTuple

from beamport._core import _wire_read, _wire_write
from beamport.wire._arrays import column, milliseconds

FILE_IDENTIFIER = b"pl72"

DetectorSpectrumMap = namedtuple("DetectorSpectrumMap", ("spectrum_numbers", "detector_ids", "n_spectra"))


class RunStartInfo(NamedTuple):
    """A start; times in milliseconds since 1970 UTC."""

    job_id: str
    filename: str
    start_time: int
    stop_time: int
    nexus_structure: str
    service_id: str
    broker: str
    run_name: str = ""
    instrument_name: str = ""
    metadata: str = ""
    detector_spectrum_map: DetectorSpectrumMap | None = None
    control_topic: str = ""


def serialise_pl72(
    job_id: str,
    filename: str,
    start_time: int | datetime | None = None,
    stop_time: int | datetime | None = None,
    run_name: str = "test_run",
    nexus_structure: str = "{}",
    service_id: str = "",
    instrument_name: str = "",
    broker: str = "",
    metadata: str = "{}",
    detector_spectrum_map: DetectorSpectrumMap | None = None,
    control_topic: str = "",
) -> bytes:
    """Write a message; without `start_time` it starts now, without `stop_time` the end is open."""
    spectra = None
    if detector_spectrum_map is not None:
        numbers = (detector_spectrum_map.spectrum_numbers, detector_spectrum_map.detector_ids)
        spectra = (*(column(given, "int32") for given in numbers), detector_spectrum_map.n_spectra)
    return _wire_write(
        "pl72",
        (
            milliseconds(start_time, int(time.time() * 1000)),
            milliseconds(stop_time, 0),
            run_name,
            instrument_name,
            nexus_structure,
            job_id,
            broker,
            "" if service_id is None else service_id,
            filename,
            1,
            spectra,
            metadata,
            control_topic,
        ),
    )


def deserialise_pl72(buffer) -> RunStartInfo:
    """Read a message; the arrays are read-only views of the buffer."""
    (
        start_time,
        stop_time,
        run_name,
        instrument_name,
        nexus_structure,
        job_id,
        broker,
        service_id,
        filename,
        _,
        spectra,
        metadata,
        control_topic,
    ) = _wire_read("pl72", buffer)
    return RunStartInfo(
        job_id=job_id,
        filename=filename,
        start_time=start_time,
        stop_time=stop_time,
        run_name=run_name,
        nexus_structure=nexus_structure,
        service_id=service_id,
        instrument_name=instrument_name,
        broker=broker,
        metadata=metadata,
        detector_spectrum_map=None if spectra is None else DetectorSpectrumMap._make(spectra),
        control_topic=control_topic,
    )
