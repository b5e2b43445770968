"""The enums of the schemas, each where `streaming_data_types` has it: numbers by name, in a class in a module of its name.

    from beamport.wire.fbschemas.logdata_f142.AlarmStatus import AlarmStatus

The modules are made here, since each is no more than a list of words. Of the tables of the schemas there is nothing.
"""

import sys
from types import ModuleType

# Words in the order of their numbers, from 0.
_ENUMS = {
    "ADAr_ADArray_schema": {
        "DType": "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64 c_string",
    },
    "NDAr_NDArray_schema": {
        "DType": "Int8 Uint8 Int16 Uint16 Int32 Uint32 Int64 Uint64 Float32 Float64 c_string",
    },
    "action_response_answ": {
        "ActionOutcome": "Success Failure",
        "ActionType": "StartJob SetStopTime",
    },
    "alarm_al00": {
        "Severity": "OK MINOR MAJOR INVALID",
    },
    "array_1d_se00": {
        "Location": "Unknown Start Middle End",
    },
    "epics_connection_ep01": {
        "ConnectionInfo": "UNKNOWN NEVER_CONNECTED CONNECTED DISCONNECTED DESTROYED CANCELLED FINISHED REMOTE_ERROR",
    },
    "epics_connection_info_ep00": {
        "EventType": "UNKNOWN NEVER_CONNECTED CONNECTED DISCONNECTED DESTROYED",
    },
    "forwarder_config_update_fc00": {
        "Protocol": "PVA CA FAKE",
        "UpdateType": "ADD REMOVE REMOVEALL REPLACE",
    },
    "forwarder_config_update_rf5k": {
        "Protocol": "PVA CA FAKE",
        "UpdateType": "ADD REMOVE REMOVEALL",
    },
    "isis_event_info_is84": {
        "RunState": "SETUP RUNNING",
    },
    "logdata_f142": {
        "AlarmSeverity": "MINOR MAJOR NO_ALARM INVALID NO_CHANGE",
        "AlarmStatus": "NO_ALARM READ WRITE HIHI HIGH LOLO LOW STATE COS COMM TIMED HWLIMIT CALC SCAN LINK SOFT BAD_SUB UDF DISABLE SIMM READ_ACCESS WRITE_ACCESS NO_CHANGE",
    },
    "sample_environment_senv": {
        "Location": "Unknown Start Middle End",
    },
    "area_detector_ad00": {
        "DType": "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64 c_string",
    },
    "dataarray_da00": {
        "da00_dtype": "none int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64 c_string",
    },
}


def _make() -> None:
    for schema, enums in _ENUMS.items():
        package = ModuleType(f"{__name__}.{schema}", "The enums of one schema.")
        package.__path__ = []
        for enum, words in enums.items():
            numbers = {word: number for number, word in enumerate(words.split())}
            module = ModuleType(f"{package.__name__}.{enum}", "One enum.")
            setattr(
                module, enum, type(enum, (), numbers | {"__doc__": "Numbers by name.", "__module__": module.__name__})
            )
            setattr(package, enum, module)
            sys.modules[module.__name__] = module
        globals()[schema] = package
        sys.modules[package.__name__] = package


_make()
