"""The forwarder beside which `beamport-bench epics-kafka` measures: p4p, ess-streaming-data-types, confluent-kafka.

`forwarder_p4p.py BROKERS TOPIC PVS` sends the values of bench:0, bench:1 and so on as `f144`, with their alarms (`al00`)
and connections (`ep01`), until its stdin ends.
"""

import select
import sys
import time

from confluent_kafka import Producer
from p4p.client.thread import Context, Disconnected
from streaming_data_types import serialise_al00, serialise_ep01, serialise_f144
from streaming_data_types.alarm_al00 import Severity
from streaming_data_types.epics_connection_ep01 import ConnectionInfo


class Channel:
    """One PV."""

    def __init__(self, context: Context, producer: Producer, topic: str, name: str) -> None:
        """Subscribe to it."""
        self.context, self.producer, self.topic, self.name = context, producer, topic, name
        self.connected, self.alarm = False, None
        self.subscribe()

    def subscribe(self) -> None:
        """Subscribe to it, in the place of a subscription before."""
        request = "record[queueSize=100]field()"
        self.subscription = self.context.monitor(self.name, self.take, request, notify_disconnect=True)

    def again(self) -> None:
        """Subscribe again where nothing comes: p4p loses a wake-up that comes before `monitor` has returned."""
        if not self.connected:
            self.subscription.close()
            self.subscribe()

    def send(self, message: bytes, nanoseconds: int) -> None:
        """Give a message to the producer."""
        self.producer.produce(self.topic, message, self.name, timestamp=nanoseconds // 1_000_000)
        self.producer.poll(0)

    def connection(self, connected: bool) -> None:
        """Send the connection, where it changed."""
        if connected != self.connected:
            self.connected, now = connected, time.time_ns()
            status = ConnectionInfo.CONNECTED if connected else ConnectionInfo.DISCONNECTED
            self.send(serialise_ep01(now, status, self.name), now)

    def take(self, update) -> None:
        """Send a value, and its alarm where that changed."""
        self.connection(not isinstance(update, Disconnected))
        if isinstance(update, Exception):
            return
        stamp = update.timeStamp
        nanoseconds = stamp.secondsPastEpoch * 1_000_000_000 + stamp.nanoseconds
        alarm = (update.alarm.severity, update.alarm.message)
        if alarm != self.alarm:
            self.alarm = alarm
            self.send(
                serialise_al00(self.name, nanoseconds, Severity(alarm[0]), alarm[1]),
                nanoseconds,
            )
        self.send(serialise_f144(self.name, update.value, nanoseconds), nanoseconds)


if __name__ == "__main__":
    brokers, topic, count = sys.argv[1:]
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    context = Context("pva", nt=False)
    channels = [Channel(context, producer, topic, f"bench:{number}") for number in range(int(count))]
    while not select.select([sys.stdin], [], [], 5)[0]:
        for channel in channels:
            channel.again()
    context.close()
    producer.flush(10)
