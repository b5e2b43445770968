"""`rf5k`: what the ESS forwarder is to forward."""

from __future__ import annotations

from collections import namedtuple

from beamport._core import _wire_read, _wire_write
from beamport.wire.fbschemas.forwarder_config_update_rf5k import Protocol, UpdateType

FILE_IDENTIFIER = b"rf5k"

ConfigurationUpdate = namedtuple("ConfigurationUpdate", ("config_change", "streams"))

StreamInfo = namedtuple("StreamInfo", ("channel", "schema", "topic", "protocol"))


def deserialise_rf5k(buffer) -> ConfigurationUpdate:
    """Read a message; changes and protocols are numbers of `UpdateType` and `Protocol`."""
    change, streams = _wire_read("rf5k", buffer)
    streams = [
        StreamInfo(channel, schema, topic, getattr(Protocol.Protocol, protocol))
        for channel, schema, topic, protocol in streams
    ]
    return ConfigurationUpdate(getattr(UpdateType.UpdateType, change), streams)


def serialise_rf5k(config_change: int, streams: list[StreamInfo]) -> bytes:
    """Write a message; its streams stand in it from the last to the first, as `streaming_data_types` has them."""
    streams = [(stream.channel, stream.schema, stream.topic, stream.protocol) for stream in reversed(streams or [])]
    return _wire_write("rf5k", (config_change, streams or None))
