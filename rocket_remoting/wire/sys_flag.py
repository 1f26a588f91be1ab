"""Bits of the three ``sysFlag`` numbers: of messages, of pull requests, of topics and subscriptions.

::

    message   bit 10–8          7        6        5          4          3–2          1         0
              compression type  inner    need     store      born host  transaction  multi     compressed
              0, 3 zlib         batch    unwrap   host is    is IPv6    0 none       tags
              1 lz4                               IPv6                  1 prepared
              2 zstd                                                    2 commit
                                                                        3 rollback
"""

COMPRESSED = 0x1
MULTI_TAGS = 0x1 << 1
TRANSACTION_NOT = 0
TRANSACTION_PREPARED = 0x1 << 2
TRANSACTION_COMMIT = 0x2 << 2
TRANSACTION_ROLLBACK = 0x3 << 2
BORN_HOST_V6 = 0x1 << 4
STORE_HOST_V6 = 0x1 << 5
NEED_UNWRAP = 0x1 << 6
INNER_BATCH = 0x1 << 7
COMPRESSION_LZ4 = 0x1 << 8
COMPRESSION_ZSTD = 0x2 << 8
COMPRESSION_ZLIB = 0x3 << 8
COMPRESSION_TYPE_MASK = 0x7 << 8

PULL_COMMIT_OFFSET = 0x1
PULL_SUSPEND = 0x1 << 1
PULL_SUBSCRIPTION = 0x1 << 2
PULL_CLASS_FILTER = 0x1 << 3
PULL_LITE = 0x1 << 4

TOPIC_UNIT = 0x1
TOPIC_UNIT_SUB = 0x1 << 1

PERM_PRIORITY = 0x1 << 3
PERM_READ = 0x1 << 2
PERM_WRITE = 0x1 << 1
PERM_INHERIT = 0x1


def transaction_value(sys_flag: int) -> int:
    """Return the transaction bits of a system flag, one of the ``TRANSACTION_*`` constants."""
    return sys_flag & TRANSACTION_ROLLBACK


def with_transaction_value(sys_flag: int, value: int) -> int:
    """Return the system flag with the transaction bits of `value`, one of the ``TRANSACTION_*`` constants."""
    return (sys_flag & ~TRANSACTION_ROLLBACK) | value
