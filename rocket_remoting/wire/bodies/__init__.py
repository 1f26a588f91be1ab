"""JSON bodies of requests and responses, one class for each of Apache's body classes, with its name.

Attributes are the names on the wire in snake_case. `decode_body` and `encode_body` read and write bodies.
`registration`, which only name servers import, reads long registrations in steps. Timestamps are milliseconds since the
epoch.
"""

# isort: skip_file
# isort would write one statement for each name. `A as A` exports a name to type checkers.

from rocket_remoting.wire.bodies.access import (
    AclInfo as AclInfo,
    PolicyEntryInfo as PolicyEntryInfo,
    PolicyInfo as PolicyInfo,
    UserInfo as UserInfo,
)
from rocket_remoting.wire.bodies.administration import (
    BrokerStatsData as BrokerStatsData,
    BrokerStatsItem as BrokerStatsItem,
    Connection as Connection,
    ConsumeQueueData as ConsumeQueueData,
    ConsumerConnection as ConsumerConnection,
    ConsumeStats as ConsumeStats,
    ConsumeStatsList as ConsumeStatsList,
    CreateTopicListRequestBody as CreateTopicListRequestBody,
    GetBrokerClusterAclConfigResponseBody as GetBrokerClusterAclConfigResponseBody,
    GroupList as GroupList,
    OffsetWrapper as OffsetWrapper,
    PlainAccessConfig as PlainAccessConfig,
    ProducerConnection as ProducerConnection,
    ProducerInfo as ProducerInfo,
    ProducerTableInfo as ProducerTableInfo,
    QueryConsumeQueueResponseBody as QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody as QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody as QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody as QuerySubscriptionResponseBody,
    QueueTimeSpan as QueueTimeSpan,
    SubscriptionGroupConfig as SubscriptionGroupConfig,
    SubscriptionGroupList as SubscriptionGroupList,
    SubscriptionGroupWrapper as SubscriptionGroupWrapper,
    TopicOffset as TopicOffset,
    TopicStatsTable as TopicStatsTable,
)
from rocket_remoting.wire.bodies.consuming import (
    CheckClientRequestBody as CheckClientRequestBody,
    ConsumeFromWhere as ConsumeFromWhere,
    ConsumeMessageDirectlyResult as ConsumeMessageDirectlyResult,
    ConsumeMessageResult as ConsumeMessageResult,
    ConsumerData as ConsumerData,
    ConsumerOffsetSerializeWrapper as ConsumerOffsetSerializeWrapper,
    ConsumerRunningInfo as ConsumerRunningInfo,
    ConsumeStatus as ConsumeStatus,
    ConsumeType as ConsumeType,
    GetConsumerListByGroupResponseBody as GetConsumerListByGroupResponseBody,
    GetConsumerStatusBody as GetConsumerStatusBody,
    HeartbeatData as HeartbeatData,
    LockBatchRequestBody as LockBatchRequestBody,
    LockBatchResponseBody as LockBatchResponseBody,
    MessageModel as MessageModel,
    MessageQueueForC as MessageQueueForC,
    ProcessQueueInfo as ProcessQueueInfo,
    ProducerData as ProducerData,
    ResetOffsetBody as ResetOffsetBody,
    ResetOffsetBodyForC as ResetOffsetBodyForC,
    SubscriptionData as SubscriptionData,
    UnlockBatchRequestBody as UnlockBatchRequestBody,
)
from rocket_remoting.wire.bodies.json_body import (
    Body as Body,
    KeyedBody as KeyedBody,
    decode_body as decode_body,
    decode_steps as decode_steps,
    encode_body as encode_body,
)
from rocket_remoting.wire.bodies.long_body import (
    Entries as Entries,
    Items as Items,
    Later as Later,
    LongBody as LongBody,
    encode_in_pieces as encode_in_pieces,
)
from rocket_remoting.wire.bodies.replication import (
    HAClientRuntimeInfo as HAClientRuntimeInfo,
    HAConnectionRuntimeInfo as HAConnectionRuntimeInfo,
    HARuntimeInfo as HARuntimeInfo,
)
from rocket_remoting.wire.bodies.routing import (
    BrokerData as BrokerData,
    BrokerMemberGroup as BrokerMemberGroup,
    ClusterInfo as ClusterInfo,
    DataVersion as DataVersion,
    KVTable as KVTable,
    QueueData as QueueData,
    RegisterBrokerBody as RegisterBrokerBody,
    TopicConfig as TopicConfig,
    TopicConfigSerializeWrapper as TopicConfigSerializeWrapper,
    TopicFilterType as TopicFilterType,
    TopicList as TopicList,
    TopicRouteData as TopicRouteData,
    encode_register_broker_body as encode_register_broker_body,
    register_broker_blocks as register_broker_blocks,
)
