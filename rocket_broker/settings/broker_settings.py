"""The settings of the broker: Apache's keys that have an effect here.

Defaults are those of Apache RocketMQ 4.9.7 unless a field says otherwise; keys that only 5.x has say so.
"""

# ruff: noqa: RUF009 - `setting` specifies a field, as dataclasses.field does

import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Self

from rocket_broker.errors import SettingError
from rocket_broker.settings import checks
from rocket_broker.settings.apache_keys import BROKER_MEANINGLESS, BROKER_REFUSED, BROKER_REPORTED
from rocket_broker.settings.apache_settings import DEFAULT_ORIGIN, Refused, setting
from rocket_broker.settings.audit_settings import AuditSettings
from rocket_broker.settings.broker_role import BrokerRole
from rocket_broker.settings.checks import LARGEST_PORT, MASTER_ID
from rocket_broker.settings.delay_levels import DelayLevels
from rocket_broker.settings.monitoring_settings import MonitoringSettings
from rocket_broker.settings.networks import Networks
from rocket_broker.settings.properties_file import Entry
from rocket_broker.settings.server_settings import LOOPBACK, address_connections_ratio, rocketmq_home
from rocket_broker.settings.store_settings import FlushDiskType, StoreSettings
from rocket_broker.settings.timer_settings import TimerSettings
from rocket_broker.settings.tls_settings import BrokerTlsSettings
from rocket_remoting.wire.bodies import UserInfo
from rocket_remoting.wire.credentials import Credentials

__all__ = [
    "MASTER_ID",
    "SMALL_STORE",
    "BrokerRole",
    "BrokerSettings",
    "FlushDiskType",
]

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
"""Settings for a developer's machine, which others use too. A store keeps the file sizes with which it was created, so
every broker and tool that opens ./.streamkit uses these. Apache's default turns SQL92 filters off until an
administrator turns them on; a developer's machine has no administrator."""

_LIMIT = "it is a limit that protects the broker from its clients"
_DISK = "it decides which messages are deleted or refused when the disk fills"
_REPEATED = "it decides how many messages are delivered again after a kill"
"""The reasons why requests cannot change a setting."""

_AUTHENTICATION = "org.apache.rocketmq.auth.authentication."
_AUTHORIZATION = "org.apache.rocketmq.auth.authorization."
LOCAL_USERS = _AUTHENTICATION + "provider.LocalAuthenticationMetadataProvider"
LOCAL_POLICIES = _AUTHORIZATION + "provider.LocalAuthorizationMetadataProvider"

_INT = 2**31 - 1

MOST_TRANSFERRED = 4 * 1024 * 1024 - 12
"""Apache's slaves read into a buffer of 4 MiB, which must hold the bytes and the header before them."""

_ANY_HOST = ("0.0.0.0", "::", "")


def _local_host_name() -> str:
    """Return this machine's name in the characters that a broker's name may have."""
    return re.sub(r"[^a-zA-Z0-9_-]", "-", socket.gethostname())[:127] or "broker-a"


def _outward_address() -> str:
    """Return the address from which this machine would connect to others; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


def _split(addresses: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in addresses.split(";") if part.strip()))


@dataclass(init=False, repr=False, eq=False)
class BrokerSettings(BrokerTlsSettings, AuditSettings, MonitoringSettings):
    """The settings of a broker, from ``broker.conf``, options and code."""

    meaningless: ClassVar[Mapping[str, str]] = BROKER_MEANINGLESS
    refused: ClassVar[Mapping[str, Refused]] = BROKER_REFUSED
    reported: ClassVar[Mapping[str, str]] = BROKER_REPORTED

    # Access control
    acl_enable: bool = setting(
        False, "Check each request by the accounts in plain_acl.yml, as RocketMQ 4.9 does.", fixed=True
    )
    require_signed_code: bool = setting(
        False,
        "Refuse signed requests whose signature does not cover the request's code, such as those of Apache's clients "
        "(no key of Apache's).",
        fixed=True,
    )
    rocketmq_home: Path | None = rocketmq_home()
    inner_client_authentication_credentials: str = setting(
        "",
        "Keys of the account with which this broker signs its requests to name servers, as a JSON object "
        f"{checks.KEYS_EXAMPLE} (5.x). With users, a super user of this name is created if there is none.",
        check=checks.credentials,
        fixed=True,
        local="it is a secret",
        secret=True,
    )

    authentication_enabled: bool = setting(
        False, "Let only users send requests, signed with their passwords, as RocketMQ 5.3 does (5.3).", fixed=True
    )
    authorization_enabled: bool = setting(
        False, "Check by the policies of users what each request may do (5.3).", fixed=True
    )
    authentication_metadata_provider: str = setting(
        "",
        "Where users are kept: in the broker's store, with Apache's class LocalAuthenticationMetadataProvider; empty: "
        "there are no users (5.3).",
        check=checks.only(LOCAL_USERS, "users are kept in the broker's store only"),
        fixed=True,
    )
    authorization_metadata_provider: str = setting(
        "",
        "Where policies are kept: in the broker's store, with Apache's class LocalAuthorizationMetadataProvider (5.3).",
        check=checks.only(LOCAL_POLICIES, "policies are kept in the broker's store only"),
        fixed=True,
    )
    authentication_provider: str = setting(
        "",
        "How users are checked: only with Apache's class DefaultAuthenticationProvider (5.3).",
        check=checks.only(_AUTHENTICATION + "provider.DefaultAuthenticationProvider", "classes are not loaded here"),
        fixed=True,
    )
    authorization_provider: str = setting(
        "",
        "How policies are checked: only with Apache's class DefaultAuthorizationProvider (5.3).",
        check=checks.only(_AUTHORIZATION + "provider.DefaultAuthorizationProvider", "classes are not loaded here"),
        fixed=True,
    )
    authentication_strategy: str = setting(
        "",
        "Apache's class StatelessAuthenticationStrategy or StatefulAuthenticationStrategy; each request is checked "
        "anew with both (5.3).",
        check=checks.only(
            _AUTHENTICATION + "strategy.StatelessAuthenticationStrategy",
            "classes are not loaded here",
            _AUTHENTICATION + "strategy.StatefulAuthenticationStrategy",
        ),
        fixed=True,
    )
    authorization_strategy: str = setting(
        "",
        "Apache's class StatelessAuthorizationStrategy or StatefulAuthorizationStrategy; each request is checked anew "
        "with both (5.3).",
        check=checks.only(
            _AUTHORIZATION + "strategy.StatelessAuthorizationStrategy",
            "classes are not loaded here",
            _AUTHORIZATION + "strategy.StatefulAuthorizationStrategy",
        ),
        fixed=True,
    )
    authentication_whitelist: str = setting(
        "", "Codes of requests that need no user, separated by commas (5.3).", check=checks.codes, fixed=True
    )
    authorization_whitelist: str = setting(
        "", "Codes of requests that need no policy, separated by commas (5.3).", check=checks.codes, fixed=True
    )
    init_authentication_user: str = setting(
        "",
        f"The first super user, which is created if it does not exist, as a JSON object {checks.USER_EXAMPLE} (5.3).",
        check=checks.user,
        fixed=True,
        local="it is a secret",
        secret=True,
    )
    migrate_auth_from_v1_enabled: bool = setting(
        False,
        "At the start, make users and policies of the accounts in plain_acl.yml whose users do not exist (5.3).",
        key="migrateAuthFromV1Enabled",
        fixed=True,
    )
    max_users: int = setting(
        10_000,
        "Maximum number of users; no further user is created (no key of Apache's).",
        minimum=1,
        local=_LIMIT,
    )

    # Who and where
    broker_name: str = setting(
        _local_host_name(),
        "Name of the broker in routes; default: this machine's host name.",
        check=checks.name,
        fixed=True,
    )
    broker_cluster_name: str = setting(
        "DefaultCluster", "Name of the cluster that the broker belongs to.", check=checks.name, fixed=True
    )
    broker_id: int = setting(
        MASTER_ID,
        "Id of the broker among those of its brokerName: 0 for the master, another one for each slave.",
        fixed=True,
    )
    listen_port: int = setting(10911, "TCP port for clients; 0 takes any free port.", maximum=LARGEST_PORT, fixed=True)
    vip_channel_enable: bool = setting(
        True,
        "Also listen on port listenPort - 2, the VIP channel of older clients (no key of Apache's).",
        fixed=True,
    )
    bind_address: str = setting(
        "",
        "Address to listen on (5.x); default: brokerIP1 if it is set, else loopback.",
        check=checks.host,
        fixed=True,
    )
    broker_ip1: str = setting(
        "",
        "Host that routes give to clients; default: bindAddress, or this machine's address if bindAddress is 0.0.0.0.",
        key="brokerIP1",
        check=checks.host,
        fixed=True,
    )
    namesrv_addr: str = setting(
        "",
        "Addresses (host:port) of the name servers to register with, separated by ';'.",
        check=checks.addresses,
        fixed=True,
    )
    region_id: str = setting(
        "DefaultRegion",
        "Region in messages and in the answers to producers (MSG_REGION). Clients write it into message traces.",
        check=checks.region,
    )
    trace_on: bool = setting(True, "Tell producers and consumers that they may send message traces (TRACE_ON).")

    # Registration
    register_name_server_period: int = setting(
        30_000, "Milliseconds between registrations with the name servers, at least 10000 and at most 60000."
    )
    register_broker_timeout_mills: int = setting(
        6_000, "Milliseconds to wait for a name server's answer to a registration.", minimum=1
    )
    compressed_register: bool = setting(False, "Compress registrations.")
    force_register: bool = setting(
        True,
        "Register in every period; false: only if a name server's data is outdated (QUERY_DATA_VERSION).",
    )
    connect_timeout_millis: int = setting(3_000, "Milliseconds to wait for a connection to a name server.", minimum=1)

    # Topics and groups
    broker_permission: int = setting(
        6,
        "Permission of the whole broker: 6 read and write, 4 read only, 2 write only.",
        check=checks.permission,
    )
    default_topic_queue_nums: int = setting(8, "Maximum number of queues of a topic that a send creates.", maximum=1024)
    auto_create_topic_enable: bool = setting(True, "Create an unknown topic when a message is sent to it.")
    auto_create_subscription_group: bool = setting(True, "Create an unknown consumer group when a consumer uses it.")
    max_topics: int = setting(
        50_000,
        "Maximum number of topics, the retry topics of groups included; no further topic is created (no key "
        "of Apache's).",
        minimum=1,
        local=_LIMIT,
    )
    max_groups: int = setting(
        50_000,
        "Maximum number of consumer groups; no further group is created (no key of Apache's).",
        minimum=1,
        local=_LIMIT,
    )
    cluster_topic_enable: bool = setting(
        True, "Let clients send to and pull from the topic with the cluster's name.", fixed=True
    )
    broker_topic_enable: bool = setting(
        True, "Let clients send to and pull from the topic with the broker's name.", fixed=True
    )
    trace_topic_enable: bool = setting(
        False, "Create the topic of message traces (msgTraceTopicName) at the start.", fixed=True
    )
    msg_trace_topic_name: str = setting(
        "RMQ_SYS_TRACE_TOPIC", "Name of the topic of message traces.", check=checks.name, fixed=True
    )

    # Serving clients
    notify_consumer_ids_changed_enable: bool = setting(
        True,
        "Notify the members of a consumer group when one joins or leaves, so that they rebalance at once.",
    )
    refuse_different_subscriptions: bool = setting(
        False,
        "Refuse a consumer whose subscription differs from that of its group's other members; false: log a "
        "warning (no key of Apache's).",
    )
    long_polling_enable: bool = setting(
        True, "Hold a pull that finds no message until one arrives or the client's timeout ends."
    )
    short_polling_time_mills: int = setting(
        1_000, "Milliseconds to hold a pull that finds no message if longPollingEnable is false."
    )
    channel_expired_timeout: int = setting(
        120_000,
        "Milliseconds without a heartbeat after which a client is removed and its connection closed (5.x).",
        minimum=1_000,
    )
    start_accept_send_request_time_stamp: int = setting(
        0, "Refuse sends before this time, in milliseconds since 1970; 0: accept them from the start."
    )
    server_channel_max_idle_time_seconds: int = setting(
        120, "Seconds without traffic after which a connection is closed; 0: never.", fixed=True
    )
    max_address_connections_ratio: int = address_connections_ratio()
    write_buffer_high_water_mark: int = setting(
        0, "Unsent bytes of a connection from which on its requests are not read; 0: 4 MiB.", fixed=True
    )
    max_buffered_bytes: int = setting(
        512 * 1024 * 1024,
        "Maximum bytes of unread answers and incomplete frames of all connections together; above it, the "
        "connections that hold the most for longest are closed (no key of Apache's).",
        minimum=1024 * 1024,
        fixed=True,
    )
    broker_fast_failure_enable: bool = setting(
        True,
        "Answer SYSTEM_BUSY to requests that have waited longer than a waitTimeMills... setting; default "
        "without a settings file, and when embedded: false.",
    )
    wait_time_mills_in_send_queue: int = setting(
        200, "Milliseconds that a send may wait before brokerFastFailureEnable refuses it.", minimum=1
    )
    wait_time_mills_in_pull_queue: int = setting(
        5_000, "Milliseconds that a pull may wait before brokerFastFailureEnable refuses it.", minimum=1
    )
    wait_time_mills_in_lite_pull_queue: int = setting(
        5_000,
        "Milliseconds that a pull of a lite pull consumer (LITE_PULL_MESSAGE) may wait before "
        "brokerFastFailureEnable refuses it (5.x).",
        minimum=1,
    )
    wait_time_mills_in_heartbeat_queue: int = setting(
        31_000, "Milliseconds that a heartbeat may wait before brokerFastFailureEnable refuses it.", minimum=1
    )
    wait_time_mills_in_transaction_queue: int = setting(
        3_000,
        "Milliseconds that the end of a transaction may wait before brokerFastFailureEnable refuses it.",
        minimum=1,
    )
    wait_time_mills_in_admin_broker_queue: int = setting(
        5_000,
        "Milliseconds that a request of a tool, or to lock queues, may wait before brokerFastFailureEnable "
        "refuses it (5.x).",
        minimum=1,
    )
    max_message_size: int = setting(
        4 * 1024 * 1024, "Maximum size of a message's body in bytes.", minimum=1, maximum=_INT, fixed=True
    )
    max_transfer_count_on_message_in_memory: int = setting(
        4096,
        "Maximum number of messages in the answer to a pull; Apache's default is 32.",
        minimum=1,
        local=_LIMIT,
    )
    max_transfer_bytes_on_message_in_memory: int = setting(
        4 * 1024 * 1024,
        "Maximum number of bytes in the answer to a pull; Apache's default is 262144.",
        minimum=1,
        local=_LIMIT,
    )
    max_msgs_num_batch: int = setting(
        64, "Maximum number of messages in the answer to a query by key.", minimum=1, fixed=True
    )
    default_query_max_num: int = setting(
        32, "Maximum number of messages in the answer to a query by unique key (UNIQ_KEY).", minimum=1
    )

    enable_property_filter: bool = setting(
        False,
        "Let consumers filter by properties (SQL92); default without a settings file, and when embedded: true.",
    )
    filter_support_retry: bool = setting(
        False,
        "Apply a group's SQL92 filter to its redelivered messages too, even to those that failed before the "
        "filter changed.",
    )
    filter_data_clean_time_span: int = setting(
        24 * 3600 * 1000, "Milliseconds for which the SQL92 filters of a group without members are kept."
    )

    # Request-reply
    store_reply_message_enable: bool = setting(True, "Store the replies of request-reply in the cluster's reply topic.")

    # Replication
    broker_role: BrokerRole = setting(
        BrokerRole.ASYNC_MASTER,
        "When a sender gets its answer: ASYNC_MASTER: once this broker has the message; SYNC_MASTER: once a slave has "
        "it as well. SLAVE: this broker copies the messages of the master with its brokerName, and accepts none.",
        fixed=True,
    )
    ha_listen_port: int = setting(
        0,
        "TCP port for slaves, which needs no account; 0: listenPort + 1 with SYNC_MASTER, and with ASYNC_MASTER slaves "
        "are not accepted. Apache's brokers always listen on listenPort + 1.",
        maximum=LARGEST_PORT,
        fixed=True,
    )
    ha_allowed_slaves: str = setting(
        "",
        "Addresses and networks from which slaves are accepted, separated by commas, as 192.168.0.2,10.1.0.0/24; "
        "default: every address, and with access control none (no key of Apache's).",
        check=checks.networks,
        fixed=True,
    )
    ha_master_address: str = setting(
        "",
        "Address (host:port) at which the master accepts this slave; default: what the name server says.",
        check=checks.addresses,
        fixed=True,
    )
    broker_ip2: str = setting(
        "",
        "Host that slaves connect to; default: brokerIP1 and its default.",
        key="brokerIP2",
        check=checks.host,
        fixed=True,
    )
    slave_timeout: int = setting(
        3_000,
        "Maximum milliseconds that a send waits for a slave with SYNC_MASTER; then the answer is FLUSH_SLAVE_TIMEOUT.",
        minimum=1,
        fixed=True,
    )
    ha_slave_fallbehind_max: int = setting(
        256 * 1024 * 1024,
        "Bytes by which every slave may be behind with SYNC_MASTER; beyond, sends do not wait, and their answer is "
        "SLAVE_NOT_AVAILABLE.",
        fixed=True,
    )
    ha_transfer_batch_size: int = setting(
        32 * 1024,
        "Maximum number of bytes of the commit log that are sent to a slave at once.",
        minimum=1,
        maximum=MOST_TRANSFERRED,
        fixed=True,
    )
    ha_send_heartbeat_interval: int = setting(
        5_000,
        "Milliseconds after which a master sends its slave a heartbeat if it has sent nothing else, and a slave "
        "reports again.",
        minimum=1,
        fixed=True,
    )
    ha_housekeeping_interval: int = setting(
        20_000,
        "Milliseconds without anything from the other one after which a master or a slave closes their connection; "
        "the slave then connects again.",
        minimum=1,
        fixed=True,
    )
    sync_from_last_file: bool = setting(
        False,
        "Send an empty slave only the last file of the commit log, as RocketMQ 4.9 does; false: the whole log (5.x).",
        fixed=True,
    )

    # Reading from slaves
    slave_read_enable: bool = setting(
        False,
        "Suggest to consumers that are far behind to pull from the broker id that their group names "
        "(whichBrokerWhenConsumeSlowly).",
    )
    access_message_in_memory_max_ratio: int = setting(
        40,
        "Percentage of this machine's memory; a consumer that is more bytes behind is far behind (slaveReadEnable).",
        maximum=100,
    )

    offset_check_in_slave: bool = setting(
        False,
        "Let a slave correct the offset of a pull that is outside of its queue, as a master does; false: such a pull "
        "waits until the slave has copied that offset.",
        fixed=True,
    )

    # Offsets and delays
    use_server_side_reset_offset: bool = setting(
        False,
        "Let the broker reset a group's offsets, even while no member is connected; false: the members do "
        "it (5.x, where true is the default).",
    )
    flush_consumer_offset_interval: int = setting(
        5_000, "Milliseconds between writes of consumerOffset.json.", minimum=1, local=_REPEATED
    )
    flush_delay_offset_interval: int = setting(
        1_000,
        "Milliseconds from the delivery of a delayed message to the write of delayOffset.json that records "
        "it; a killed broker repeats unrecorded deliveries. Apache's default is 10000.",
        minimum=1,
        local=_REPEATED,
    )
    message_delay_level: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "Delays of the levels from 1 on, separated by spaces; units: s, m, h, d.",
        check=checks.delay_levels,
        fixed=True,
    )

    # Timers
    timer_wheel_enable: bool = setting(
        True,
        "Deliver messages at any time that their senders set (5.x); false: refuse timed messages.",
        fixed=True,
    )
    timer_precision_ms: int = setting(
        1_000,
        "Maximum lateness of a timed message in milliseconds: 100, 200, 500 or 1000.",
        check=checks.timer_precision,
        fixed=True,
    )
    timer_max_delay_sec: int = setting(
        40 * 24 * 3600,
        "Maximum delay of a timed message in seconds; Apache's default is 259200, three days.",
        minimum=1,
        local=_LIMIT,
    )
    timer_roll_window_slot: int = setting(
        2 * 24 * 3600,
        "Maximum time to a timer on the timer wheel, in units of timerPrecisionMs; a message with a longer "
        "delay is stored again.",
        minimum=2,
        fixed=True,
    )
    timer_congest_num_each_slot: int = setting(
        _INT,
        "Maximum number of timed messages that are due in the same timerPrecisionMs; further ones are refused.",
        minimum=1,
        maximum=_INT,
        local=_LIMIT,
    )
    recall_message_enable: bool = setting(
        True, "Let senders recall timed messages (RECALL_MESSAGE); Apache's default is false."
    )
    timer_flush_interval_ms: int = setting(
        1_000, "Milliseconds between flushes of the timer wheel and the timer log.", minimum=1, fixed=True
    )
    mapped_file_size_timer_log: int = setting(
        100 * 1024 * 1024,
        "Bytes of a timer log file; a timer takes 52.",
        minimum=4096,
        maximum=_INT,
        fixed=True,
    )

    # Transactions
    reject_transaction_message: bool = setting(False, "Refuse half messages of transactions.")
    transaction_time_out: int = setting(
        6_000,
        "Milliseconds after which a half message without a commit or rollback is checked with its producer.",
        minimum=0,
    )
    transaction_check_interval: int = setting(
        60_000, "Milliseconds between two rounds of transaction checks.", minimum=1
    )
    transaction_check_max: int = setting(
        15, "Number of checks after which a half message is moved to TRANS_CHECK_MAX_TIME_TOPIC.", minimum=0
    )
    transaction_producer_wait_hours: int = setting(
        72,
        "Hours that a half message waits for a live producer of its group that can be asked; then it is moved to "
        "TRANS_CHECK_MAX_TIME_TOPIC. Rounds without a producer do not count as checks.",
        minimum=0,
    )

    # Store
    store_path_root_dir: Path = setting(Path.home() / "store", "Directory of the store.", fixed=True)
    store_path_commit_log: Path | None = setting(
        None, "Directory of the commit log; default: commitlog in storePathRootDir.", fixed=True
    )
    mapped_file_size_commit_log: int = setting(
        1024**3, "Bytes of a commit log file.", minimum=4096, maximum=_INT, fixed=True
    )
    mapped_file_size_consume_queue: int = setting(
        300_000 * 20,
        "Bytes of a consume queue file; a message takes 20.",
        minimum=20,
        maximum=_INT,
        fixed=True,
    )
    flush_disk_type: FlushDiskType = setting(
        FlushDiskType.ASYNC_FLUSH,
        "When a sender gets its answer: ASYNC_FLUSH: once the message is in the page cache; SYNC_FLUSH: "
        "once it is on the disk.",
        fixed=True,
    )
    flush_interval_commit_log: int = setting(
        500, "Milliseconds between checks whether to flush the commit log.", minimum=1, fixed=True
    )
    flush_commit_log_least_pages: int = setting(
        4, "Number of new pages of 4 KiB from which on the commit log is flushed.", fixed=True
    )
    flush_commit_log_thorough_interval: int = setting(
        10_000,
        "Milliseconds after which the commit log is flushed even if less than a page is new.",
        minimum=1,
        fixed=True,
    )
    transient_store_pool_enable: bool = setting(
        False,
        "With ASYNC_FLUSH: collect messages in memory before they are committed to the commit log's files; "
        "kill -9 loses the uncommitted ones.",
        fixed=True,
    )
    transient_store_pool_size: int = setting(
        5,
        "Maximum number of commit log files whose messages are collected in memory (transientStorePoolEnable).",
        minimum=1,
        fixed=True,
    )
    fast_fail_if_no_buffer_in_store_pool: bool = setting(
        False,
        "Refuse messages once transientStorePoolSize is reached; false: write them directly to the file.",
        fixed=True,
    )
    commit_interval_commit_log: int = setting(
        200,
        "Milliseconds between checks whether to commit collected messages to the commit log's files "
        "(transientStorePoolEnable).",
        minimum=1,
        fixed=True,
    )
    commit_commit_log_least_pages: int = setting(
        4, "Number of new pages of 4 KiB from which on collected messages are committed.", fixed=True
    )
    commit_commit_log_thorough_interval: int = setting(
        200,
        "Milliseconds after which collected messages are committed even if less than a page is new.",
        minimum=1,
        fixed=True,
    )
    flush_interval_consume_queue: int = setting(
        1_000, "Milliseconds between checks whether to flush consume queues.", minimum=1, fixed=True
    )
    flush_consume_queue_least_pages: int = setting(
        2, "Number of new pages of 4 KiB from which on a consume queue is flushed.", fixed=True
    )
    flush_consume_queue_thorough_interval: int = setting(
        60_000,
        "Milliseconds after which all consume queues and index files are flushed.",
        minimum=1,
        fixed=True,
    )
    sync_flush_timeout: int = setting(
        5_000,
        "Maximum milliseconds that a send waits for the disk with SYNC_FLUSH; then the answer is FLUSH_DISK_TIMEOUT.",
        minimum=1,
        fixed=True,
    )
    check_crc_on_recover: bool = setting(
        True, "Check the CRC of the message bodies that recovery reads.", key="checkCRCOnRecover", fixed=True
    )
    message_index_enable: bool = setting(True, "Build the index for queries by key.", fixed=True)
    max_hash_slot_num: int = setting(
        5_000_000, "Number of hash slots of an index file.", minimum=1, maximum=2**26, fixed=True
    )
    max_index_num: int = setting(
        20_000_000,
        "Maximum number of entries of an index file, one for each key of each message.",
        minimum=2,
        maximum=2**27,
        fixed=True,
    )

    file_reserved_time: int = setting(
        72,
        "Hours for which a commit log file is kept after its last write, and for which a half message is checked.",
        minimum=1,
        fixed=True,
    )
    delete_when: str = setting(
        "04",
        "Hours of the day, local time, in which expired files are deleted, separated by ';'.",
        check=checks.hours,
    )
    clean_resource_interval: int = setting(
        10_000, "Milliseconds between checks for expired files and of the disk usage.", minimum=1, local=_DISK
    )
    delete_file_batch_max: int = setting(
        10,
        "Maximum number of commit log files deleted at one check of cleanResourceInterval (5.x).",
        minimum=1,
    )
    delete_commit_log_files_interval: int = setting(
        100, "Milliseconds between the deletions of two commit log files.", local=_DISK
    )
    disk_max_used_space_ratio: int = setting(
        75,
        "Percentage of used disk space above which expired files are deleted at any hour.",
        minimum=10,
        maximum=95,
        local=_DISK,
    )
    clean_file_forcibly_enable: bool = setting(
        True, "Delete the oldest files, expired or not, above diskSpaceCleanForciblyRatio.", local=_DISK
    )
    disk_space_clean_forcibly_ratio: int = setting(
        85,
        "Percentage of used disk space above which cleanFileForciblyEnable applies (5.x).",
        minimum=10,
        maximum=100,
        local=_DISK,
    )
    disk_space_warning_level_ratio: int = setting(
        90,
        "Percentage of used disk space above which messages are refused (5.x).",
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
        settings._check_users()
        settings._check_role()
        settings._check_slaves()
        return settings

    def _check_role(self) -> None:
        """Check that role and id go together.

        Raises:
            SettingError: They do not, or a slave could not find its master.
        """
        if self.is_slave == (self.broker_id == MASTER_ID):
            expected = "expected a number above 0 for a slave" if self.is_slave else "expected 0 for a master"
            origin = self.origins.get("brokerId") or self.origins.get("brokerRole", DEFAULT_ORIGIN)
            raise SettingError("brokerId", str(self.broker_id), origin, expected)
        if self.is_slave and not self.name_servers:
            origin = self.origins["brokerRole"]
            raise SettingError("brokerRole", "SLAVE", origin, "needs namesrvAddr, which tells it its master")

    def _check_slaves(self) -> None:
        """Warn if slaves are accepted from no address."""
        if self.slaves_port is not None and self.allowed_slaves is not None and not self.ha_allowed_slaves:
            origin = self.origins.get("haListenPort") or self.origins.get("brokerRole", DEFAULT_ORIGIN)
            self.warnings.append(
                f"{origin}: no slave is accepted, because the port for slaves has no accounts, and access control "
                "is on: set haAllowedSlaves to the addresses of the slaves"
            )

    def _check_users(self) -> None:
        """Check that the settings of 5.3's access control go together.

        Raises:
            SettingError: Requests could not be checked, for lack of users or policies.
        """
        users = ("authenticationMetadataProvider", LOCAL_USERS, self.authentication_metadata_provider)
        policies = ("authorizationMetadataProvider", LOCAL_POLICIES, self.authorization_metadata_provider)
        for key, is_on, needed in (
            ("authenticationEnabled", self.authentication_enabled, [users]),
            ("authorizationEnabled", self.authorization_enabled, [users, policies]),
            ("migrateAuthFromV1Enabled", self.migrate_auth_from_v1_enabled, [users, policies]),
        ):
            for provider, class_, given in needed if is_on else ():
                if not given:
                    raise SettingError(key, "true", self.origins[key], f"needs {provider}={class_}")
        if self.init_authentication_user and not self.keeps_users:
            self._warn("initAuthenticationUser", f"it needs authenticationMetadataProvider={LOCAL_USERS}")
        if self.acl_enable and self.checks_users:
            self._warn("aclEnable", "5.3's access control is on, and Apache's broker of 5.3 has no other")
        if self.require_signed_code and not (self.acl_enable or self.authentication_enabled):
            self._warn("requireSignedCode", "it needs aclEnable=true or authenticationEnabled=true")
        if self.authorization_enabled and not self.authentication_enabled:
            self.warnings.append(
                f"{self.origins['authorizationEnabled']}: without authenticationEnabled=true requests are not signed: "
                "whoever names a user has the rights of that user"
            )

    def _warn(self, key: str, reason: str) -> None:
        self.warnings.append(f"{self.origins[key]}: {key} has no effect: {reason}")

    @property
    def keeps_users(self) -> bool:
        """Whether the broker keeps users and their policies, perhaps without checking requests by them yet."""
        return bool(self.authentication_metadata_provider)

    @property
    def checks_users(self) -> bool:
        """Whether requests are checked by users and policies."""
        return self.authentication_enabled or self.authorization_enabled

    @property
    def first_user(self) -> UserInfo | None:
        """The super user in ``initAuthenticationUser``."""
        return checks.parse_user(self.init_authentication_user)

    @property
    def name_servers(self) -> list[str]:
        """The addresses in ``namesrvAddr``, without duplicates."""
        return _split(self.namesrv_addr)

    @property
    def listen_host(self) -> str:
        """The address to listen on: loopback, unless the settings advertise or bind another address."""
        return self.bind_address or self.broker_ip1 or LOOPBACK

    @property
    def advertised_host(self) -> str:
        """The broker's host in routes."""
        if self.broker_ip1:
            return self.broker_ip1
        return _outward_address() if self.listen_host in _ANY_HOST else self.listen_host

    @property
    def is_slave(self) -> bool:
        """Whether the broker copies a master's messages."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def slaves_port(self) -> int | None:
        """The port for slaves, 0 for any free port; None if slaves are not accepted."""
        if self.ha_listen_port and not self.is_slave:
            return self.ha_listen_port
        if self.broker_role is not BrokerRole.SYNC_MASTER:
            return None
        return self.listen_port + 1 if self.listen_port else 0

    @property
    def allowed_slaves(self) -> Networks | None:
        """The addresses from which slaves are accepted; None for all."""
        if self.ha_allowed_slaves or self.acl_enable or self.checks_users:
            return checks.parse_networks(self.ha_allowed_slaves)
        return None

    @property
    def slaves_host(self) -> str:
        """The address to listen on for slaves."""
        return self.bind_address or self.broker_ip2 or self.listen_host

    @property
    def accounts_dir(self) -> Path:
        """Directory of ``plain_acl.yml``."""
        if self.rocketmq_home is not None:
            return self.rocketmq_home / "conf"
        return self.config_dir if self.source is None else self.source.parent

    @property
    def credentials(self) -> Credentials | None:
        """The keys with which the broker signs its requests to name servers."""
        return checks.parse_credentials(self.inner_client_authentication_credentials)

    @property
    def config_dir(self) -> Path:
        """Directory of ``topics.json`` and the other tables."""
        return self.store_path_root_dir / "config"

    def timer_settings(self) -> TimerSettings:
        """Return the settings of the timers.

        The roll window is at most two thirds of ``fileReservedTime``: a timed message is stored again in time, before
        its file of the commit log is deleted.
        """
        safe_slots = self.file_reserved_time * 3_600_000 * 2 // 3 // self.timer_precision_ms
        return TimerSettings(
            root=self.store_path_root_dir,
            precision_ms=self.timer_precision_ms,
            roll_window_slots=min(self.timer_roll_window_slot, safe_slots),
            log_file_size=self.mapped_file_size_timer_log,
            flush_interval_ms=self.timer_flush_interval_ms,
        )

    def store_settings(self) -> StoreSettings:
        """Return the settings of the store."""
        own = {name: getattr(self, name) for name in _STORE_FIELDS}
        return StoreSettings(
            root=self.store_path_root_dir,
            commit_log_dir=self.store_path_commit_log,
            mapped_file_size_consume_queue=-(-self.mapped_file_size_consume_queue // 20) * 20,  # whole entries
            delay_levels=DelayLevels(self.message_delay_level),
            file_reserved_time=self.file_reserved_time * 3_600_000,
            delete_when=frozenset(map(int, _split(self.delete_when))),
            is_replica=self.is_slave,
            **own,
        )


_STORE_FIELDS = {*StoreSettings.__struct_fields__} & {f.name for f in fields(BrokerSettings)} - {
    "mapped_file_size_consume_queue",
    "file_reserved_time",
    "delete_when",
}
"""The settings that a store has under the same name and in the same unit."""
