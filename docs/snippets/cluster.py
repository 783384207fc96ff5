import trio

from mcptrio import Server
from mcptrio.cluster import ClusterConfig
from mcptrio.stores.redis import RedisStore

server = Server("orders")


async def main() -> None:
    store = RedisStore.from_url("redis://localhost?name=orders")
    await server.serve_http(store=store, cluster=ClusterConfig(lease=2.0), port=8000)


if __name__ == "__main__":
    trio.run(main)
