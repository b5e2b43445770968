"""`fc00`: what the ESS forwarder is to forward."""

from __future__ import annotations

from collections import namedtuple

from beamport._core import _wire_read, _wire_write
from beamport.wire.fbschemas.forwarder_config_update_fc00 import Protocol, UpdateType

FILE_IDENTIFIER = b"fc00"

ConfigurationUpdate = namedtuple("ConfigurationUpdate", ("config_change", "streams"))

StreamInfo = namedtuple("StreamInfo", ("channel", "schema", "topic", "protocol", "periodic"))


def deserialise_fc00(buffer) -> ConfigurationUpdate:
    """Read a message; changes and protocols are numbers of `UpdateType` and `Protocol`."""
    change, streams = _wire_read("fc00", buffer)
    streams = [
        StreamInfo(channel, schema, topic, getattr(Protocol.Protocol, protocol), periodic)
        for channel, schema, topic, protocol, periodic in streams
    ]
    return ConfigurationUpdate(getattr(UpdateType.UpdateType, change), streams)


def serialise_fc00(config_change: int, streams: list[StreamInfo]) -> bytes:
    """Write a message; its streams stand in it from the last to the first, as `streaming_data_types` has them."""
    streams = [
        (stream.channel, stream.schema, stream.topic, stream.protocol, stream.periodic)
        for stream in reversed(streams or [])
    ]
    return _wire_write("fc00", (config_change, streams or None))
