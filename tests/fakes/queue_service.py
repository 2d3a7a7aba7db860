"""A service with one queue whose law is known exactly, whatever the machine does.

    python queue_service.py M|D SERVICE_S SEED

Requests are served one at a time, in the order in which they arrive: each takes SERVICE_S seconds (D), or a time drawn
from the exponential distribution with that mean (M). The moment at which each is served is computed, and the response
waits for it. So the capacity does not depend on how long the machine needs for a request. Prints its URL.
"""

import asyncio
import random
import sys


async def main(law: str, service_s: float, seed: int) -> None:
    """Serve until the process is ended."""
    chance = random.Random(seed)
    loop = asyncio.get_running_loop()
    free_at = 0.0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal free_at
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                taken_s = service_s if law == "D" else chance.expovariate(1 / service_s)
                free_at = max(free_at, loop.time()) + taken_s
                await asyncio.sleep(free_at - loop.time())
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
