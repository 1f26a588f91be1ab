"""The settings of the broker: Apache's keys that mean something here.

Defaults are those of Apache RocketMQ 4.9.7 unless a field says otherwise; keys that only 5.x has say so.
"""

# ruff: noqa: RUF009 - `setting` specifies a field, as dataclasses.field does

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from rocket_broker.settings import checks
from rocket_broker.settings.apache_keys import BROKER_MEANINGLESS, BROKER_REFUSED, BROKER_TOLD
from rocket_broker.settings.apache_settings import ApacheSettings, Refused, setting
from rocket_broker.settings.checks import LARGEST_PORT, MASTER_ID
from rocket_broker.settings.delay_levels import DelayLevels
from rocket_broker.settings.properties_file import Entry
from rocket_broker.settings.store_settings import FlushDiskType, StoreSettings
from rocket_broker.settings.timer_settings import TimerSettings

__all__ = [
    "LOOPBACK",
    "MASTER_ID",
    "MAX_QUEUES",
    "SMALL_STORE",
    "BrokerSettings",
    "FlushDiskType",
    "address_connections_ratio",
]

MAX_QUEUES = 65_536
"""Most queues of a topic: what a tool asks about a topic is done for each of its queues."""

SMALL_STORE = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
    "enablePropertyFilter": "true",
    "cleanFileForciblyEnable": "false",
    "diskSpaceWarningLevelRatio": "100",
    "brokerFastFailureEnable": "false",
}
"""Settings for a developer's machine, whose disk and processors others use. A store keeps the file sizes it was made
with, so all that open ./.streamkit use these. Filtering by SQL92 is Apache's to turn on by hand; here there is nobody
to do that."""

_LIMIT = "it is a limit that protects the broker from its clients"
_DISK = "it decides what becomes of messages when the disk fills"
_REPEATED = "it decides how much is delivered again after a kill"
"""Why requests cannot change a setting."""

_INT = 2**31 - 1
_ANY_HOST = ("0.0.0.0", "::", "")
LOOPBACK = "127.0.0.1"


def _local_host_name() -> str:
    """Return this machine's name in the characters a broker's name may have."""
    return re.sub(r"[^a-zA-Z0-9_-]", "-", socket.gethostname())[:127] or "broker-a"


def _outward_address() -> str:
    """Return the address this machine would use to talk to others; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


def _split(addresses: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in addresses.split(";") if part.strip()))


def address_connections_ratio() -> int:
    """Declare ``maxAddressConnectionsRatio``, as the broker and the name server have it."""
    return setting(
        20,
        "Percent of a port's connections that one address may have, an IPv4 address or 64 bits of an IPv6 address; the "
        "server's own may have all. 100: so may every address (no key of Apache's).",
        minimum=1,
        maximum=100,
        fixed=True,
    )


@dataclass
class BrokerSettings(ApacheSettings):
    """What a broker is told by ``broker.conf``, options and code."""

    meaningless: ClassVar[Mapping[str, str]] = BROKER_MEANINGLESS
    refused: ClassVar[Mapping[str, Refused]] = BROKER_REFUSED
    told: ClassVar[Mapping[str, str]] = BROKER_TOLD

    # Who and where
    broker_name: str = setting(
        _local_host_name(),
        "Name of the broker in routes; default: the host's name.",
        check=checks.name,
        fixed=True,
    )
    broker_cluster_name: str = setting(
        "DefaultCluster", "Cluster the broker belongs to.", check=checks.name, fixed=True
    )
    broker_id: int = setting(MASTER_ID, "0: master.", check=checks.master, fixed=True)
    listen_port: int = setting(10911, "Port for clients. 0: any free port.", maximum=LARGEST_PORT, fixed=True)
    vip_channel_enable: bool = setting(
        True, "Serve listenPort - 2 too, where old clients send (no key of Apache's).", fixed=True
    )
    bind_address: str = setting(
        "",
        "Address to listen on (5.x); default: brokerIP1 if set, else loopback.",
        check=checks.host,
        fixed=True,
    )
    broker_ip1: str = setting(
        "",
        "Address that clients are told; default: bindAddress, or this machine's when that is 0.0.0.0.",
        key="brokerIP1",
        check=checks.host,
        fixed=True,
    )
    namesrv_addr: str = setting(
        "", "Name servers to register with, separated by ';'.", check=checks.addresses, fixed=True
    )
    region_id: str = setting(
        "DefaultRegion", "Region in the answers to producers that trace.", check=checks.region
    )
    trace_on: bool = setting(True, "Tell clients that tracing is welcome.")

    # Registration
    register_name_server_period: int = setting(
        30_000, "Milliseconds between registrations, held between 10 s and 60 s."
    )
    register_broker_timeout_mills: int = setting(
        6_000, "Milliseconds a name server has for its answer.", minimum=1
    )
    compressed_register: bool = setting(False, "Send registrations compressed.")
    force_register: bool = setting(
        True, "Register each time; false: first ask whether the name server's data is old."
    )
    connect_timeout_millis: int = setting(3_000, "Milliseconds for a connection to a name server.", minimum=1)

    # Topics and groups
    broker_permission: int = setting(6, "6 read and write, 4 read, 2 write.", check=checks.permission)
    default_topic_queue_nums: int = setting(8, "Most queues of a topic created by a send.", maximum=1024)
    auto_create_topic_enable: bool = setting(True, "Create an unknown topic at the first send.")
    auto_create_subscription_group: bool = setting(True, "Create an unknown consumer group when it appears.")
    max_topics: int = setting(
        50_000,
        "Most topics; no further one is made, retry topics of groups included (no key of Apache's).",
        minimum=1,
        local=_LIMIT,
    )
    max_groups: int = setting(
        50_000, "Most consumer groups; no further one is made (no key of Apache's).", minimum=1, local=_LIMIT
    )
    cluster_topic_enable: bool = setting(True, "The cluster's name is a topic to read and write.", fixed=True)
    broker_topic_enable: bool = setting(True, "The broker's name is a topic to read and write.", fixed=True)
    trace_topic_enable: bool = setting(False, "Make the trace topic at start.", fixed=True)
    msg_trace_topic_name: str = setting(
        "RMQ_SYS_TRACE_TOPIC", "The trace topic.", check=checks.name, fixed=True
    )

    # Serving clients
    notify_consumer_ids_changed_enable: bool = setting(True, "Tell a group's members when one comes or goes.")
    refuse_different_subscriptions: bool = setting(
        False,
        "Refuse a consumer that wants something else than the other members of its group, instead of a warning "
        "(no key of Apache's).",
    )
    long_polling_enable: bool = setting(True, "Hold a pull that finds nothing until a message arrives.")
    short_polling_time_mills: int = setting(1_000, "Milliseconds a pull is held when long polling is off.")
    channel_expired_timeout: int = setting(
        120_000, "Milliseconds after which a silent client is forgotten (5.x).", minimum=1_000
    )
    start_accept_send_request_time_stamp: int = setting(0, "Refuse sends before this time, in ms since 1970.")
    server_channel_max_idle_time_seconds: int = setting(
        120, "Seconds without traffic after which a connection is closed; 0: never.", fixed=True
    )
    max_address_connections_ratio: int = address_connections_ratio()
    write_buffer_high_water_mark: int = setting(
        0, "Unsent bytes at which a connection's requests are no longer read; 0: 4 MiB.", fixed=True
    )
    max_buffered_bytes: int = setting(
        512 * 1024 * 1024,
        "Most bytes that clients leave unread, and of frames that are not whole, of all connections together; above, "
        "the worst ones are closed (no key of Apache's).",
        minimum=1024 * 1024,
        fixed=True,
    )
    broker_fast_failure_enable: bool = setting(
        True,
        "Refuse as SYSTEM_BUSY what has waited for too long; false without a settings file, and embedded.",
    )
    wait_time_mills_in_send_queue: int = setting(
        200, "Milliseconds that a send may wait until the broker comes to it.", minimum=1
    )
    wait_time_mills_in_pull_queue: int = setting(5_000, "The same of a pull.", minimum=1)
    wait_time_mills_in_lite_pull_queue: int = setting(
        5_000, "The same of a pull by the second code (5.x).", minimum=1
    )
    wait_time_mills_in_heartbeat_queue: int = setting(31_000, "The same of a heartbeat.", minimum=1)
    wait_time_mills_in_transaction_queue: int = setting(3_000, "The same of a transaction's end.", minimum=1)
    wait_time_mills_in_admin_broker_queue: int = setting(
        5_000, "The same of what tools ask, and of locks (5.x).", minimum=1
    )
    max_message_size: int = setting(
        4 * 1024 * 1024, "Largest body in bytes.", minimum=1, maximum=_INT, fixed=True
    )
    max_transfer_count_on_message_in_memory: int = setting(
        4096, "Most messages in the answer to a pull; Apache's default is 32.", minimum=1, local=_LIMIT
    )
    max_transfer_bytes_on_message_in_memory: int = setting(
        4 * 1024 * 1024,
        "Most bytes in the answer to a pull; Apache's default is 256 KiB.",
        minimum=1,
        local=_LIMIT,
    )
    max_msgs_num_batch: int = setting(
        64, "Most messages the answer to a query by key has.", minimum=1, fixed=True
    )
    default_query_max_num: int = setting(32, "Most messages a query by key may ask for.", minimum=1)

    enable_property_filter: bool = setting(
        False, "Let consumers filter by properties (SQL92); true without a settings file, and when embedded."
    )
    filter_support_retry: bool = setting(
        False, "Filter by properties what is redelivered, too: a group's new filter holds for old failures."
    )
    filter_data_clean_time_span: int = setting(
        24 * 3600 * 1000, "Milliseconds for which the filters of a group without members are kept."
    )

    # Request-reply
    store_reply_message_enable: bool = setting(True, "Keep replies in the cluster's reply topic.")

    # Reading from slaves
    slave_read_enable: bool = setting(
        False, "Send consumers that are far behind to another broker of this one's name, as their group says."
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        "Percent of the memory that messages may be behind before they count as being on the disk.",
        maximum=100,
    )

    # Offsets and delays
    use_server_side_reset_offset: bool = setting(
        False,
        "Reset offsets at the broker, whoever is alive (5.x, where it is the default); false: by the members.",
    )
    flush_consumer_offset_interval: int = setting(
        5_000, "Milliseconds between writes of consumerOffset.json.", minimum=1, local=_REPEATED
    )
    flush_delay_offset_interval: int = setting(
        1_000,
        "Milliseconds between a delivery of a delay level and the write of delayOffset.json that notes it: what a "
        "killed broker delivers again; Apache's default is 10000.",
        minimum=1,
        local=_REPEATED,
    )
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delay of each level from 1 on.",
        check=checks.delay_levels,
        fixed=True,
    )

    # Timers
    timer_wheel_enable: bool = setting(
        True, "Deliver messages at any time that their senders ask for (5.x).", fixed=True
    )
    timer_precision_ms: int = setting(
        1_000,
        "So many milliseconds late a timed message is delivered at most: 100, 200, 500 or 1000.",
        check=checks.timer_precision,
        fixed=True,
    )
    timer_max_delay_sec: int = setting(
        40 * 24 * 3600,
        "Longest delay of a timed message in seconds; Apache's default is three days.",
        minimum=1,
        local=_LIMIT,
    )
    timer_roll_window_slot: int = setting(
        2 * 24 * 3600, "Moments after which a longer timer is stored anew.", minimum=2, fixed=True
    )
    timer_congest_num_each_slot: int = setting(
        _INT, "Most messages that may wait for one moment.", minimum=1, maximum=_INT, local=_LIMIT
    )
    recall_message_enable: bool = setting(
        True, "Let senders recall timed messages by request 370; Apache's default is false."
    )
    timer_flush_interval_ms: int = setting(
        1_000, "Milliseconds between writes of the timers' files.", minimum=1, fixed=True
    )
    mapped_file_size_timer_log: int = setting(
        100 * 1024 * 1024,
        "Bytes of a timer log file, 52 for each timer.",
        minimum=4096,
        maximum=_INT,
        fixed=True,
    )

    # Transactions
    reject_transaction_message: bool = setting(False, "Refuse half messages of transactions.")
    transaction_time_out: int = setting(
        6_000, "Milliseconds a half message is left alone before its producer is asked about it.", minimum=0
    )
    transaction_check_interval: int = setting(
        60_000, "Milliseconds between two rounds of questions about half messages.", minimum=1
    )
    transaction_check_max: int = setting(
        15, "Checks of a half message before it goes to TRANS_CHECK_MAX_TIME_TOPIC.", minimum=0
    )

    # Store
    store_path_root_dir: Path = setting(Path.home() / "store", "Directory of the store.", fixed=True)
    store_path_commit_log: Path | None = setting(
        None, "Directory of the commit log; default: commitlog in the store.", fixed=True
    )
    mapped_file_size_commit_log: int = setting(
        1024**3, "Bytes of a commit log file.", minimum=4096, maximum=_INT, fixed=True
    )
    mapped_file_size_consume_queue: int = setting(
        300_000 * 20,
        "Bytes of a consume queue file, 20 for each message.",
        minimum=20,
        maximum=_INT,
        fixed=True,
    )
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH, "ASYNC_FLUSH or SYNC_FLUSH: when a sender gets its answer.", fixed=True
    )
    flush_interval_commit_log: int = setting(500, "Milliseconds between flushes.", minimum=1, fixed=True)
    flush_commit_log_least_pages: int = setting(4, "Pages that make a flush worth it.", fixed=True)
    flush_commit_log_thorough_interval: int = setting(
        10_000, "Milliseconds after which even one page is flushed.", minimum=1, fixed=True
    )
    transient_store_pool_enable: bool = setting(
        False,
        "With ASYNC_FLUSH: let messages wait in memory until they are committed to the log; kill -9 loses those.",
        fixed=True,
    )
    transient_store_pool_size: int = setting(
        5, "Most files of the log that wait in memory.", minimum=1, fixed=True
    )
    fast_fail_if_no_buffer_in_store_pool: bool = setting(
        False, "Refuse messages when so many wait; else they are written to the file at once.", fixed=True
    )
    commit_interval_commit_log: int = setting(
        200, "Milliseconds between commits of what waits in memory.", minimum=1, fixed=True
    )
    commit_commit_log_least_pages: int = setting(4, "Pages that make a commit worth it.", fixed=True)
    commit_commit_log_thorough_interval: int = setting(
        200, "Milliseconds after which even one page is committed.", minimum=1, fixed=True
    )
    flush_interval_consume_queue: int = setting(
        1_000, "Milliseconds between flushes of consume queues.", minimum=1, fixed=True
    )
    flush_consume_queue_least_pages: int = setting(
        2, "Pages that make flushing a consume queue worth it.", fixed=True
    )
    flush_consume_queue_thorough_interval: int = setting(
        60_000, "Milliseconds after which all queues and indexes are flushed.", minimum=1, fixed=True
    )
    sync_flush_timeout: int = setting(
        5_000, "Milliseconds a SYNC_FLUSH sender waits before FLUSH_DISK_TIMEOUT.", minimum=1, fixed=True
    )
    check_crc_on_recover: bool = setting(
        True, "Check the bodies of the messages recovery reads.", key="checkCRCOnRecover", fixed=True
    )
    message_index_enable: bool = setting(True, "Build the index that queries by key use.", fixed=True)
    max_hash_slot_num: int = setting(
        5_000_000, "Hash slots of an index file.", minimum=1, maximum=2**26, fixed=True
    )
    max_index_num: int = setting(
        20_000_000, "Entries of an index file.", minimum=2, maximum=2**27, fixed=True
    )

    file_reserved_time: int = setting(
        72,
        "Hours a file of the commit log is kept, and a half message asked about.",
        minimum=1,
        fixed=True,
    )
    delete_when: str = setting(
        "04",
        "Hours of the day at which older files are deleted, separated by ';'.",
        check=checks.hours,
    )
    clean_resource_interval: int = setting(
        10_000, "Milliseconds between looks at age and disk.", minimum=1, local=_DISK
    )
    delete_file_batch_max: int = setting(
        10, "Most files of the commit log deleted in one go (5.x).", minimum=1
    )
    delete_commit_log_files_interval: int = setting(
        100, "Milliseconds between two deleted files of the commit log.", local=_DISK
    )
    disk_max_used_space_ratio: int = setting(
        75,
        "Percent of the disk used from which older files are deleted at any hour.",
        minimum=10,
        maximum=95,
        local=_DISK,
    )
    clean_file_forcibly_enable: bool = setting(
        True, "Delete the oldest files, whatever their age, when the disk fills.", local=_DISK
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85, "Percent of the disk used from which that is done (5.x).", minimum=10, maximum=100, local=_DISK
    )
    disk_space_warning_level_ratio: int = setting(
        90,
        "Percent of the disk used from which messages are refused (5.x).",
        minimum=10,
        maximum=100,
        local=_DISK,
    )

    @classmethod
    def from_entries(cls, entries: Iterable[Entry]) -> Self:
        settings = super().from_entries(entries)
        if settings.transient_store_pool_enable and settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            origin = settings.origins["transientStorePoolEnable"]
            settings.warnings.append(
                f"{origin}: transientStorePoolEnable has no effect with flushDiskType=SYNC_FLUSH: senders wait "
                "for the disk, as on Apache's brokers"
            )
        return settings

    @property
    def name_servers(self) -> list[str]:
        """The addresses in ``namesrvAddr``, each once."""
        return _split(self.namesrv_addr)

    @property
    def listen_host(self) -> str:
        """The address to bind: loopback, unless the settings ask to be known elsewhere."""
        return self.bind_address or self.broker_ip1 or LOOPBACK

    @property
    def advertised_host(self) -> str:
        """The host that routes name."""
        if self.broker_ip1:
            return self.broker_ip1
        return _outward_address() if self.listen_host in _ANY_HOST else self.listen_host

    @property
    def config_dir(self) -> Path:
        """Where ``topics.json`` and the other tables are."""
        return self.store_path_root_dir / "config"

    def timer_settings(self) -> TimerSettings:
        """Return what the timers are told: no message waits for so long that its file may be deleted."""
        safe_slots = self.file_reserved_time * 3_600_000 * 2 // 3 // self.timer_precision_ms
        return TimerSettings(
            root=self.store_path_root_dir,
            precision_ms=self.timer_precision_ms,
            roll_window_slots=min(self.timer_roll_window_slot, safe_slots),
            log_file_size=self.mapped_file_size_timer_log,
            flush_interval_ms=self.timer_flush_interval_ms,
        )

    def store_settings(self) -> StoreSettings:
        """Return what the store is told."""
        return StoreSettings(
            root=self.store_path_root_dir,
            commit_log_dir=self.store_path_commit_log,
            mapped_file_size_commit_log=self.mapped_file_size_commit_log,
            mapped_file_size_consume_queue=-(-self.mapped_file_size_consume_queue // 20)
            * 20,  # whole entries
            flush_disk_type=self.flush_disk_type,
            flush_interval_commit_log=self.flush_interval_commit_log,
            flush_commit_log_least_pages=self.flush_commit_log_least_pages,
            flush_commit_log_thorough_interval=self.flush_commit_log_thorough_interval,
            transient_store_pool_enable=self.transient_store_pool_enable,
            transient_store_pool_size=self.transient_store_pool_size,
            fast_fail_if_no_buffer_in_store_pool=self.fast_fail_if_no_buffer_in_store_pool,
            commit_interval_commit_log=self.commit_interval_commit_log,
            commit_commit_log_least_pages=self.commit_commit_log_least_pages,
            commit_commit_log_thorough_interval=self.commit_commit_log_thorough_interval,
            flush_interval_consume_queue=self.flush_interval_consume_queue,
            flush_consume_queue_least_pages=self.flush_consume_queue_least_pages,
            flush_consume_queue_thorough_interval=self.flush_consume_queue_thorough_interval,
            sync_flush_timeout=self.sync_flush_timeout,
            max_message_size=self.max_message_size,
            message_index_enable=self.message_index_enable,
            max_hash_slot_num=self.max_hash_slot_num,
            max_index_num=self.max_index_num,
            max_msgs_num_batch=self.max_msgs_num_batch,
            check_crc_on_recover=self.check_crc_on_recover,
            delay_levels=DelayLevels(self.message_delay_level),
            file_reserved_time=self.file_reserved_time * 3_600_000,
            delete_when=frozenset(map(int, _split(self.delete_when))),
            clean_resource_interval=self.clean_resource_interval,
            delete_file_batch_max=self.delete_file_batch_max,
            delete_commit_log_files_interval=self.delete_commit_log_files_interval,
            disk_max_used_space_ratio=self.disk_max_used_space_ratio,
            disk_space_clean_forcibly_ratio=self.disk_space_clean_forcibly_ratio,
            clean_file_forcibly_enable=self.clean_file_forcibly_enable,
            disk_space_warning_level_ratio=self.disk_space_warning_level_ratio,
        )
