"""Typed headers of requests and responses, one class for each of Apache's header classes, with its name.

Attributes are the names on the wire in snake_case. A field without a default is required by Apache's clients and
brokers. Unknown fields are ignored when a header is read. A request without header fields has no class here. Timestamps
are milliseconds since the epoch.
"""

# isort: skip_file
# isort would write one statement for each name. `A as A` exports a name to type checkers.

from rocket_remoting.wire.ext_fields import (
    Header as Header,
)
from rocket_remoting.wire.headers.access import (
    CreateAclRequestHeader as CreateAclRequestHeader,
    CreateUserRequestHeader as CreateUserRequestHeader,
    DeleteAclRequestHeader as DeleteAclRequestHeader,
    DeleteUserRequestHeader as DeleteUserRequestHeader,
    GetAclConfigRequestHeader as GetAclConfigRequestHeader,
    GetAclRequestHeader as GetAclRequestHeader,
    GetUserRequestHeader as GetUserRequestHeader,
    ListAclsRequestHeader as ListAclsRequestHeader,
    ListUsersRequestHeader as ListUsersRequestHeader,
    UpdateAclRequestHeader as UpdateAclRequestHeader,
    UpdateUserRequestHeader as UpdateUserRequestHeader,
    WITH_SECRETS as WITH_SECRETS,
)
from rocket_remoting.wire.headers.administration import (
    CloneGroupOffsetRequestHeader as CloneGroupOffsetRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader as ConsumeMessageDirectlyResultRequestHeader,
    CreateAccessConfigRequestHeader as CreateAccessConfigRequestHeader,
    CreateTopicRequestHeader as CreateTopicRequestHeader,
    DeleteAccessConfigRequestHeader as DeleteAccessConfigRequestHeader,
    DeleteSubscriptionGroupRequestHeader as DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader as DeleteTopicRequestHeader,
    GetBrokerAclConfigResponseHeader as GetBrokerAclConfigResponseHeader,
    GetBrokerConfigResponseHeader as GetBrokerConfigResponseHeader,
    GetConsumerConnectionListRequestHeader as GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader as GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader as GetConsumerStatusRequestHeader,
    GetConsumeStatsInBrokerHeader as GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader as GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader as GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader as GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader as GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader as GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader as QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader as QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader as QueryCorrectionOffsetHeader,
    QuerySubscriptionByConsumerRequestHeader as QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader as QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader as QueryTopicsByConsumerRequestHeader,
    ResetOffsetRequestHeader as ResetOffsetRequestHeader,
    ViewBrokerStatsDataRequestHeader as ViewBrokerStatsDataRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader as UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from rocket_remoting.wire.headers.consuming import (
    GetConsumerListByGroupRequestHeader as GetConsumerListByGroupRequestHeader,
    GetEarliestMsgStoretimeRequestHeader as GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader as GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader as GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader as GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader as GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader as GetMinOffsetResponseHeader,
    NotifyConsumerIdsChangedRequestHeader as NotifyConsumerIdsChangedRequestHeader,
    PullMessageRequestHeader as PullMessageRequestHeader,
    PullMessageResponseHeader as PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader as QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader as QueryConsumerOffsetResponseHeader,
    QueryMessageRequestHeader as QueryMessageRequestHeader,
    QueryMessageResponseHeader as QueryMessageResponseHeader,
    SearchOffsetRequestHeader as SearchOffsetRequestHeader,
    SearchOffsetResponseHeader as SearchOffsetResponseHeader,
    UnregisterClientRequestHeader as UnregisterClientRequestHeader,
    UpdateConsumerOffsetRequestHeader as UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader as ViewMessageRequestHeader,
)
from rocket_remoting.wire.headers.routing import (
    AddWritePermOfBrokerRequestHeader as AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader as AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader as BrokerHeartbeatRequestHeader,
    DeleteKVConfigRequestHeader as DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader as DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader as GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader as GetKVConfigRequestHeader,
    GetKVConfigResponseHeader as GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader as GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader as GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader as GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader as PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader as QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader as QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader as RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader as RegisterBrokerResponseHeader,
    RegisterTopicRequestHeader as RegisterTopicRequestHeader,
    UnRegisterBrokerRequestHeader as UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader as WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader as WipeWritePermOfBrokerResponseHeader,
)
from rocket_remoting.wire.headers.rpc import (
    RpcRequestHeader as RpcRequestHeader,
    TopicRequestHeader as TopicRequestHeader,
)
from rocket_remoting.wire.headers.sending import (
    CheckTransactionStateRequestHeader as CheckTransactionStateRequestHeader,
    CheckTransactionStateResponseHeader as CheckTransactionStateResponseHeader,
    ConsumerSendMsgBackRequestHeader as ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader as EndTransactionRequestHeader,
    RecallMessageRequestHeader as RecallMessageRequestHeader,
    RecallMessageResponseHeader as RecallMessageResponseHeader,
    ReplyMessageRequestHeader as ReplyMessageRequestHeader,
    ResumeCheckHalfMessageRequestHeader as ResumeCheckHalfMessageRequestHeader,
    SendDeduplicatedRequestHeader as SendDeduplicatedRequestHeader,
    SendMessageRequestHeader as SendMessageRequestHeader,
    SendMessageRequestHeaderV2 as SendMessageRequestHeaderV2,
    SendMessageResponseHeader as SendMessageResponseHeader,
)
