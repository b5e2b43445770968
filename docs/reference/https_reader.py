"""Follows a stream of a host by HTTPS, without beamport: `python https_reader.py URL STREAM AUTHORITY CERTIFICATE KEY`.

It prints a line for each message, holds nobody up, and begins where it was when its connection was cut.
"""

import http.client
import ssl
import struct
import sys
import time
import urllib.request

from stream_reader import block


def follow(url: str, stream: str, context: ssl.SSLContext | None = None, position: str = "begin"):
    """The messages of a stream from a position on, as `block` has them, for ever."""
    while True:
        try:
            with urllib.request.urlopen(f"{url}/streams/{stream}?from={position}", context=context) as answer:
                while head := answer.read(8):
                    data = answer.read(*struct.unpack("<Q", head))
                    uuid, epoch, _, _, messages = block(data) if data else ("", 0, 0, 0, [])
                    for message in messages:
                        yield message
                        position = f"{uuid.hex()}/{epoch}/{message[0] + 1}"
        except (OSError, http.client.HTTPException, struct.error) as error:
            print(f"{url}: {error}; again in a second", file=sys.stderr)
        time.sleep(1)


if __name__ == "__main__":
    url, stream, authority, certificate, key = sys.argv[1:]
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate, key)
    for sequence, time_ns, _, number, origin, schema, _, payload in follow(url, stream, context):
        print(sequence, time_ns, origin, number, schema.decode(), len(payload), "bytes", flush=True)
