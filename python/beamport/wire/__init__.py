"""The facility's messages, read and written under the names of the package `streaming_data_types`.

Changing the import is enough:

    from beamport.wire import deserialise_ev44, serialise_f144
    from beamport.wire.logdata_f144 import serialise_f144

Arguments and results are those of that package (ESS 0.27, its repository for `ar51`, and ISIS 0.1 for `pu00`, `un00`
and `vc00`), submodule by submodule. What differs: arrays that were read are views of the buffer, and read-only; a
buffer is checked as a whole before anything of it is given out, and one that is broken raises `BrokenBufferException`;
an array that is absent is an empty one, not 0; a value that the schema cannot hold raises `UnfitValueException`.
"""

import sys

from beamport.wire import schema_identifier as utils
from beamport.wire.action_response_answ import deserialise_answ, serialise_answ
from beamport.wire.alarm_al00 import deserialise_al00, serialise_al00
from beamport.wire.area_detector_ad00 import deserialise_ad00, serialise_ad00
from beamport.wire.area_detector_ADAr import deserialise_ADAr, serialise_ADAr
from beamport.wire.area_detector_NDAr import deserialise_ndar, serialise_ndar
from beamport.wire.array_1d_se00 import deserialise_se00, serialise_se00
from beamport.wire.dataarray_da00 import deserialise_da00, serialise_da00
from beamport.wire.epics_connection_ep01 import deserialise_ep01, serialise_ep01
from beamport.wire.epics_connection_info_ep00 import deserialise_ep00, serialise_ep00
from beamport.wire.eventdata_an44 import deserialise_an44, serialise_an44
from beamport.wire.eventdata_ev42 import deserialise_ev42, serialise_ev42
from beamport.wire.eventdata_ev43 import deserialise_ev43, serialise_ev43
from beamport.wire.eventdata_ev44 import deserialise_ev44, serialise_ev44
from beamport.wire.finished_writing_wrdn import deserialise_wrdn, serialise_wrdn
from beamport.wire.forwarder_config_update_fc00 import deserialise_fc00, serialise_fc00
from beamport.wire.forwarder_config_update_rf5k import deserialise_rf5k, serialise_rf5k
from beamport.wire.histogram_hs00 import deserialise_hs00, serialise_hs00
from beamport.wire.histogram_hs01 import deserialise_hs01, serialise_hs01
from beamport.wire.json_json import deserialise_json, serialise_json
from beamport.wire.logdata_f142 import deserialise_f142, serialise_f142
from beamport.wire.logdata_f144 import deserialise_f144, serialise_f144
from beamport.wire.nicos_cache_ns10 import deserialise_ns10, serialise_ns10
from beamport.wire.pulse_metadata_pu00 import deserialise_pu00, serialise_pu00
from beamport.wire.readout_data_ar51 import deserialise_ar51, serialise_ar51
from beamport.wire.run_start_pl72 import deserialise_pl72, serialise_pl72
from beamport.wire.run_stop_6s4t import deserialise_6s4t, serialise_6s4t
from beamport.wire.sample_environment_senv import deserialise_senv, serialise_senv
from beamport.wire.status_x5f2 import deserialise_x5f2, serialise_x5f2
from beamport.wire.timestamps_tdct import deserialise_tdct, serialise_tdct
from beamport.wire.units_un00 import deserialise_un00, serialise_un00
from beamport.wire.vetoes_vc00 import deserialise_vc00, serialise_vc00

# The other package has it under this name, which says nothing.
sys.modules[f"{__name__}.utils"] = utils

SERIALISERS = {
    "an44": serialise_an44,
    "ev42": serialise_ev42,
    "ev43": serialise_ev43,
    "ev44": serialise_ev44,
    "hs00": serialise_hs00,
    "hs01": serialise_hs01,
    "f142": serialise_f142,
    "f144": serialise_f144,
    "ns10": serialise_ns10,
    "pl72": serialise_pl72,
    "6s4t": serialise_6s4t,
    "x5f2": serialise_x5f2,
    "ep00": serialise_ep00,
    "ep01": serialise_ep01,
    "tdct": serialise_tdct,
    "rf5k": serialise_rf5k,
    "fc00": serialise_fc00,
    "answ": serialise_answ,
    "wrdn": serialise_wrdn,
    "NDAr": serialise_ndar,
    "senv": serialise_senv,
    "se00": serialise_se00,
    "ADAr": serialise_ADAr,
    "al00": serialise_al00,
    "json": serialise_json,
    "ad00": serialise_ad00,
    "da00": serialise_da00,
    "un00": serialise_un00,
    "pu00": serialise_pu00,
    "vc00": serialise_vc00,
    "ar51": serialise_ar51,
}

DESERIALISERS = {
    "an44": deserialise_an44,
    "ev42": deserialise_ev42,
    "ev43": deserialise_ev43,
    "ev44": deserialise_ev44,
    "hs00": deserialise_hs00,
    "hs01": deserialise_hs01,
    "f142": deserialise_f142,
    "f144": deserialise_f144,
    "ns10": deserialise_ns10,
    "pl72": deserialise_pl72,
    "6s4t": deserialise_6s4t,
    "x5f2": deserialise_x5f2,
    "ep00": deserialise_ep00,
    "ep01": deserialise_ep01,
    "tdct": deserialise_tdct,
    "rf5k": deserialise_rf5k,
    "fc00": deserialise_fc00,
    "answ": deserialise_answ,
    "wrdn": deserialise_wrdn,
    "NDAr": deserialise_ndar,
    "senv": deserialise_senv,
    "se00": deserialise_se00,
    "ADAr": deserialise_ADAr,
    "al00": deserialise_al00,
    "json": deserialise_json,
    "ad00": deserialise_ad00,
    "da00": deserialise_da00,
    "un00": deserialise_un00,
    "pu00": deserialise_pu00,
    "vc00": deserialise_vc00,
    "ar51": deserialise_ar51,
}

__all__ = [
    "DESERIALISERS",
    "SERIALISERS",
    "deserialise_6s4t",
    "deserialise_ADAr",
    "deserialise_ad00",
    "deserialise_al00",
    "deserialise_an44",
    "deserialise_answ",
    "deserialise_ar51",
    "deserialise_da00",
    "deserialise_ep00",
    "deserialise_ep01",
    "deserialise_ev42",
    "deserialise_ev43",
    "deserialise_ev44",
    "deserialise_f142",
    "deserialise_f144",
    "deserialise_fc00",
    "deserialise_hs00",
    "deserialise_hs01",
    "deserialise_json",
    "deserialise_ndar",
    "deserialise_ns10",
    "deserialise_pl72",
    "deserialise_pu00",
    "deserialise_rf5k",
    "deserialise_se00",
    "deserialise_senv",
    "deserialise_tdct",
    "deserialise_un00",
    "deserialise_vc00",
    "deserialise_wrdn",
    "deserialise_x5f2",
    "serialise_6s4t",
    "serialise_ADAr",
    "serialise_ad00",
    "serialise_al00",
    "serialise_an44",
    "serialise_answ",
    "serialise_ar51",
    "serialise_da00",
    "serialise_ep00",
    "serialise_ep01",
    "serialise_ev42",
    "serialise_ev43",
    "serialise_ev44",
    "serialise_f142",
    "serialise_f144",
    "serialise_fc00",
    "serialise_hs00",
    "serialise_hs01",
    "serialise_json",
    "serialise_ndar",
    "serialise_ns10",
    "serialise_pl72",
    "serialise_pu00",
    "serialise_rf5k",
    "serialise_se00",
    "serialise_senv",
    "serialise_tdct",
    "serialise_un00",
    "serialise_vc00",
    "serialise_wrdn",
    "serialise_x5f2",
]
