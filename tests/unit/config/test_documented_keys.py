"""Every key documented by Spring Cloud Stream 2.0 to 5.0 and both generations of the RocketMQ binder is known."""

import pytest

from streamkit.config.environment import Environment
from streamkit.config.report import report_settings
from streamkit.config.verdict import Verdict
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.running.rehearsal import rehearse_settings

STREAM = """
instanceCount=2 instanceIndex=1 instanceIndexList=1 bindings.b.destination=t default.destination=t
default.consumer.maxAttempts=2 default.producer.partitionCount=2 binders.x.type=inmemory binders.x.environment.a=1
binders.x.inheritEnvironment=false binders.x.defaultCandidate=false defaultBinder=x default.binder=x
dynamicDestinations=t dynamicDestinationCacheSize=5 bindingRetryInterval=5 source=a inputBindings=a outputBindings=b
pollable-source=a overrideCloudConnectors=true function.definition=f function.bindings.f-in-0=b
function.autodetect=false function.routing.enabled=true poller.fixedDelay=5
integration.messageHandlerNotPropagatedHeaders=x poller.maxMessagesPerPoll=5 poller.cron=* poller.initialDelay=5
metrics.key=x metrics.meterFilter=x metrics.properties=x
metrics.scheduleInterval=5s schemaRegistryClient.endpoint=x schemaRegistryClient.cached=true
"""

BINDING = """
destination=t group=g contentType=text/plain binder=x errorHandlerDefinition=f
consumer.autoStartup=false consumer.concurrency=2 consumer.partitioned=true consumer.instanceCount=2
consumer.instanceIndex=1 consumer.instanceIndexList=1 consumer.maxAttempts=2 consumer.backOffInitialInterval=5
consumer.backOffMaxInterval=5 consumer.backOffMultiplier=3 consumer.defaultRetryable=false
consumer.retryableExceptions.java.lang.X=true consumer.retryTemplateName=x consumer.headerMode=none
consumer.useNativeDecoding=true consumer.multiplex=true consumer.batchMode=true
producer.autoStartup=false producer.partitionKeyExpression=payload producer.partitionKeyExtractorName=x
producer.partitionSelectorName=x producer.partitionSelectorExpression=x producer.partitionKeyExtractorClass=x
producer.partitionSelectorClass=x producer.partitionCount=2 producer.requiredGroups=g producer.headerMode=none
producer.useNativeEncoding=true producer.errorChannelEnabled=true producer.poller.fixedDelay=5
producer.poller.maxMessagesPerPoll=5 producer.poller.cron=* producer.poller.initialDelay=5
producer.dynamicPartitionUpdatesEnabled=true
"""

ROCKET_BINDER = """
nameServer=a:1;b:2 accessKey=k secretKey=s enableMsgTrace=true customizedTraceTopic=t group=g namespace=n namespaceV2=n
unitName=u accessChannel=CLOUD enabled=false vipChannelEnabled=true useTLS=true pollNameServerInterval=5
heartbeatBrokerInterval=5 persistConsumerOffsetInterval=5
"""

COMMON = """
enabled=false nameServer=a:1 accessKey=k secretKey=s namespace=n unitName=u customizedTraceTopic=t accessChannel=CLOUD
group=g enableMsgTrace=true vipChannelEnabled=true useTLS=true pollNameServerInterval=5 heartbeatBrokerInterval=5
persistConsumerOffsetInterval=5
"""

ROCKET_CONSUMER = """
tags=a sql=x broadcasting=true orderly=true delayLevelWhenNextConsume=-1 suspendCurrentQueueTimeMillis=5
trustedPackages=* pullTimeout=5 fromStore=true messageModel=BROADCASTING
allocateMessageQueueStrategy=averagely-by-circle
subscription=a pullTimeDelayMillsWhenException=5 consumeFromWhere=CONSUME_FROM_FIRST_OFFSET
consumeTimestamp=20200101000000 pullThresholdForQueue=5 pullThresholdSizeForQueue=5 pullBatchSize=5 consumeMaxSpan=5
push.orderly=true push.suspendCurrentQueueTimeMillis=5 push.maxReconsumeTimes=5 push.delayLevelWhenNextConsume=5
push.pullThresholdForTopic=5 push.pullThresholdSizeForTopic=5 push.pullInterval=5 push.consumeMessageBatchMaxSize=5
push.consumeTimeout=5 pull.pollTimeoutMillis=5 pull.pullThreadNums=5 pull.topicMetadataCheckIntervalMillis=5
pull.consumerTimeoutMillisWhenSuspend=5 pull.errAcknowledge=x pull.pullThresholdForAll=5
"""

ROCKET_PRODUCER = """
maxMessageSize=5 transactional=true sync=true sendMessageTimeout=5 compressMessageBodyThreshold=5
retryTimesWhenSendFailed=5 retryTimesWhenSendAsyncFailed=5 retryNextServer=true sendMsgTimeout=5
compressMsgBodyThreshold=5 retryAnotherBroker=true producerType=Trans sendType=OneWay sendCallBack=x
transactionListener=x messageQueueSelector=x errorMessageStrategy=x sendFailureChannel=x checkForbiddenHook=x
sendMessageHook=x
"""

OTHERS = """
rocketmq.name-server=a:1 rocketmq.producer.group=g rocketmq.producer.access-key=k rocketmq.producer.secret-key=k
rocketmq.producer.enable-msg-trace=true rocketmq.producer.customized-trace-topic=t
rocketmq.producer.send-message-timeout=5 management.health.binders.enabled=false
management.endpoints.web.exposure.include=bindings
management.endpoints.web.exposure.exclude=bindings management.endpoints.web.base-path=/a
management.endpoints.enabled-by-default=false management.endpoints.access.default=none
management.endpoints.access.max-permitted=read-only management.endpoint.health.enabled=false
management.endpoint.health.access=none management.endpoint.health.show-details=when-authorized
management.endpoint.health.show-components=never management.endpoint.health.roles=ops
management.endpoint.bindings.enabled=true management.endpoint.bindings.access=read-only
management.server.port=0 management.server.address=::1 management.server.base-path=/a
spring.security.user.name=ops spring.security.user.password=x spring.security.user.roles=ops
"""

_ROCKET = "spring.cloud.stream.rocketmq"
_BINDING = {
    "spring.cloud.stream.default-binder": "rocketmq",
    "spring.cloud.stream.bindings.b.consumer.concurrency": 1,
    "spring.cloud.stream.bindings.b.producer.auto-startup": True,
}
"""A binding of both directions, which reads the settings of both."""

_PLACES = {
    "spring.cloud.stream.": STREAM,
    "spring.cloud.stream.bindings.b.": BINDING,
    "spring.cloud.stream.default.": BINDING,
    f"{_ROCKET}.binder.": ROCKET_BINDER,
    f"{_ROCKET}.bindings.b.consumer.": COMMON + ROCKET_CONSUMER,
    f"{_ROCKET}.default.consumer.": COMMON + ROCKET_CONSUMER,
    f"{_ROCKET}.bindings.b.producer.": COMMON + ROCKET_PRODUCER,
    f"{_ROCKET}.default.producer.": COMMON + ROCKET_PRODUCER,
    "": OTHERS,
}


@pytest.mark.parametrize("prefix", _PLACES)
def test_every_documented_key_is_known(prefix: str) -> None:
    """In effect, without effect, or refused with a reason; never unknown or silently ignored."""
    plugins = ApplicationPlugins()
    silent = []
    for line in _PLACES[prefix].split():
        key, _, value = line.partition("=")
        environment = Environment.load(
            overrides={prefix + key: value}, variables={}, config_location="optional:/none", defaults=_BINDING
        )
        rows = report_settings(environment, rehearse_settings(environment, plugins).problems)
        row = next(row for row in rows if row.key == prefix + key)
        if row.verdict is Verdict.FOREIGN or (row.reason or "").startswith(("unknown setting", "nothing reads")):
            silent.append(f"{prefix}{key}: {row.verdict.value}, {row.reason}")
    assert silent == []
