"""Workers: what is shared and what each has for itself."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rocket_client import Admin, ClientSettings
from streamkit.application import StreamApplication
from streamkit.cli.supervision import check_settings_reach_workers, settings_of_workers, shared_settings
from streamkit.errors import ConfigurationError

STREAM = "spring.cloud.stream"
BINDER = f"{STREAM}.rocketmq.binder"


def application(**settings: str) -> StreamApplication:
    """Return an application with these settings."""
    properties = {key.replace("__", "."): value for key, value in settings.items()}
    return StreamApplication(config_location="optional:/none", properties=properties)


def test_each_worker_has_its_own_index_and_management_port() -> None:
    """Counted up from the application's; port 0 stays 0."""
    app = application(**{f"{STREAM}.instance-index": "4", "management.server.port": "9000"})
    assert settings_of_workers(app, 2) == [
        {f"{STREAM}.instance-index": "4", f"{STREAM}.instance-count": "6", "management.server.port": "9000"},
        {f"{STREAM}.instance-index": "5", f"{STREAM}.instance-count": "6", "management.server.port": "9001"},
    ]
    app = application(**{f"{STREAM}.instance-count": "9", "management.server.port": "0"})
    assert settings_of_workers(app, 1) == [{f"{STREAM}.instance-index": "0", f"{STREAM}.instance-count": "9"}]


def test_settings_given_by_code_are_refused_with_workers() -> None:
    """They would override those of each worker, so that all had the same index or a broker each."""
    app = application(**{f"{BINDER}.embedded": "always", f"{STREAM}.instance-index": "0"})
    check_settings_reach_workers(app, [{f"{STREAM}.instance-index": "0", f"{STREAM}.instance-count": "2"}])
    with pytest.raises(ConfigurationError, match=r"given in code: .*binder\.embedded=always: with --workers") as caught:
        check_settings_reach_workers(app, [{f"{BINDER}.embedded": "never"}])
    assert caught.value.key == f"{BINDER}.embedded"


@pytest.mark.parametrize(
    ("settings", "prefix"),
    [
        ({f"{BINDER}.embedded": "always"}, ""),
        (
            {
                f"{STREAM}.binders.near.type": "rocketmq",
                f"{STREAM}.binders.near.environment.{BINDER}.embedded": "always",
                f"{STREAM}.binders.far.type": "inmemory",
                f"{STREAM}.bindings.in.binder": "near",
                f"{STREAM}.bindings.out.binder": "far",
            },
            f"{STREAM}.binders[near].environment.",
        ),
    ],
    ids=["the only binder", "one of several"],
)
def test_embedded_broker_is_shared(tmp_path: Path, settings: dict[str, str], prefix: str) -> None:
    """It runs as long as the supervisor; workers get its address and start none of their own."""
    app = application(**settings, **{f"{BINDER}.embedded-store": str(tmp_path)})

    async def main() -> None:
        async with AsyncExitStack() as shared:
            found = dict(await shared_settings(app, shared))
            address = found.pop(f"{prefix}{BINDER}.name-server")
            assert found == {
                f"{prefix}{BINDER}.embedded": "never",
                f"{prefix}{BINDER}.provisioning": "create",
            }
            async with Admin(ClientSettings(name_servers=address)) as admin:
                assert (await admin.cluster_info()).broker_addr_table

    asyncio.run(main())


def test_nothing_is_shared_with_a_named_broker() -> None:
    """Nor by binders that have nothing to share."""

    async def shared(**settings: str) -> dict[str, str]:
        async with AsyncExitStack() as stack:
            return dict(await shared_settings(application(**settings), stack))

    assert asyncio.run(shared(**{f"{BINDER}.name-server": "127.0.0.1:1"})) == {}
    assert asyncio.run(shared(**{f"{STREAM}.default-binder": "inmemory"})) == {}
