"""The database servers that tests of patterns run on."""

from urllib.parse import urlsplit

import asyncpg
import pymysql
import redis as redis_client


async def _version(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("select version()"))
    finally:
        await connection.close()


def test_postgresql_serves(postgresql: str) -> None:
    import asyncio

    assert asyncio.run(_version(postgresql)).startswith("PostgreSQL")


def test_mariadb_serves(mariadb: str) -> None:
    url = urlsplit(mariadb)
    with pymysql.connect(host=url.hostname, port=url.port or 0, user=url.username, database=url.path[1:]) as connection:
        cursor = connection.cursor()
        cursor.execute("select version()")
        [version] = cursor.fetchone() or ()
    assert "MariaDB" in version


def test_redis_serves(redis: str) -> None:
    with redis_client.Redis.from_url(redis) as client:
        assert client.set("key", "value")
