"""Apache's keys that this broker does not honour, with the reasons.

Every key of Apache RocketMQ 4.9.7 and 5.3.3 (BrokerConfig, BrokerIdentity, MessageStoreConfig, NettyServerConfig,
NettyClientConfig, AuthConfig, NamesrvConfig, and the tiered store's MessageStoreConfig) is a field in
`broker_settings.py` or stands here. What the broker sets itself is not a key (AuthConfig's clusterName and configName).
"""

from rocket_broker.settings.apache_settings import Refused

__all__ = ["BROKER_MEANINGLESS", "BROKER_REFUSED", "BROKER_REPORTED", "NAME_SERVER_MEANINGLESS"]


def _by_key(keys: dict[str, str]) -> dict[str, str]:
    """Return the reason for each key, given the keys for each reason."""
    return {key: reason for reason, text in keys.items() for key in text.split()}


BROKER_MEANINGLESS = _by_key(
    {
        "messages go straight to the page cache, or through the transient store pool": """
        accessMessageInMemoryHotRatio cleanSwapedMapInterval commitLogForceSwapMapInterval commitLogSwapMapInterval
        commitLogSwapMapReserveFileNum flushCommitLogTimed flushLeastPagesWhenWarmMapedFile
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
        mappedFileSwapEnable putConsumeQueueDataByFileChannel readUnCommitted wakeCommitWhenPutMessage
        wakeFlushWhenPutMessage warmMapedFileEnable
    """,
        "these statistics are not kept": """
        accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats commercialBaseCount commercialBigCount
        commercialEnable commercialSizePerMsg commercialTimerCount commercialTransCount diskFallRecorded
        enableDetailStat enableLmqStats enableScheduleMessageStats estimateAccumulation isolateLogEnable
        maxStatsIdleTimeInMinutes printChannelGroups printChannelGroupsMinNum
    """,
        "metrics are served to Prometheus, and not pushed": """
        metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
        metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta
    """,
        "one event loop serves all requests, there are no thread pools and queues": """
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums
        adminBrokerThreadPoolQueueCapacity asyncSendEnable batchDispatchRequestThreadPoolNums
        clientAsyncSemaphoreValue clientCallbackExecutorThreads clientManageThreadPoolNums
        clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable
        clientWorkerThreads compactionThreadNum consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
        debugLockEnable disableCallbackExecutor disableNettyWorkerGroup dispatchCqCacheNum dispatchCqThreads
        dispatchFromSenderThread enableAsyncReput enableBuildConsumeQueueConcurrently enableFastChannelEventProcess
        endTransactionPoolQueueCapacity endTransactionThreadPoolNums heartbeatThreadPoolNums
        heartbeatThreadPoolQueueCapacity highSpeedMode litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
        loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity maxAsyncPutMessageRequests
        processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
        putMessageFutureThreadPoolNums putMessageTimeout putThreadPoolQueueCapacity queryMessageThreadPoolNums
        queryThreadPoolQueueCapacity recoverConcurrently recoverThreadPoolNums replyThreadPoolQueueCapacity
        sampleCountThreshold sampleSteps sendMessageThreadPoolNums sendThreadPoolQueueCapacity
        serverAsyncSemaphoreValue serverCallbackExecutorThreads serverNettyWorkerGroupEnable
        serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads serverWorkerThreads
        spinLockCollisionRetreatOptimalDegree timerGetMessageThreadNum timerPutMessageThreadNum topicQueueLockNum
        transferMsgByHeap useABSLock useEpollNativeSelector useReentrantLockWhenPutMessage
    """,
        "the limit for slow writes is waitTimeMillsInSendQueue": "osPageCacheBusyTimeOutMills",
        "users and policies are kept in memory, and each request is checked anew": """
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond statefulAuthenticationCacheExpiredSecond
        statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
        userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
    """,
        "replication is that of RocketMQ 4.9, without a controller, epochs and in-sync replicas": """
        allAckInSyncStateSet asyncLearner brokerElectionPriority brokerHeartbeatInterval
        brokerNotActiveTimeoutMillis checkSyncStateSetPeriod cleanOfflineBrokerInterval compatibleWithOldNameSrv
        controllerAddr controllerHeartBeatTimeoutMills dLegerGroup dLegerPeers dLegerSelfId duplicationEnable
        enableAutoInSyncReplicas enableRemoteEscape enableSlaveActingMaster fetchControllerAddrByDnsLookup
        forwardTimeout haFlowControlEnable haMaxGapNotInSync haMaxTimeSlaveNotCatchup inBrokerContainer
        inSyncReplicas lockInStrictMode maxHaTransferByteInSecond maxSlaveResendLength minInSyncReplicas
        preferredLeaderId replicasPerDiskPartition sendHeartbeatTimeoutMillis skipPreOnline storePathBrokerIdentity
        storePathDLedgerCommitLog storePathEpochFile syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod
        syncControllerMetadataPeriod syncMasterFlushOffsetWhenStartup totalReplicas
    """,
        "pop consumption (5.x) is not built in": """
        allowRecallWhenBrokerNotWriteable appendAckAsync appendCkAsync defaultMessageRequestMode
        defaultPopShareQueueNum enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
        enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold enableRetryTopicV2
        enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem loadBalancePollNameServerInterval maxPopPollingSize
        popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
        popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit popConsumerKVServiceLog
        popFromRetryProbability popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapSize
        popPollingSize popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
        retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum
        reviveScanTime serverLoadBalancerEnable skipWhenCKRePutReachMaxTimes waitTimeMillsInAckQueue
    """,
        "a topic's name has at most 127 characters": "autoMessageVersionOnTopicLen maxTopicLength",
        "SQL92 filters read the messages, there is no extended consume queue": """
        bitMapLengthConsumeQueueExt enableCalcFilterBitMap enableConsumeQueueExt expectConsumerNumUseFilter
        mappedFileSizeConsumeQueueExt maxErrorRateOfBloomFilter
    """,
        "a pull examines at most 800 messages, see docs/protocol.md": "maxFilterMessageSize",
        "RocketMQ has no filter servers any more": "filterServerNums",
        "tables and queues are Apache's default files, not RocksDB": """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin configManagerVersion
        enableRocksDBLog memTableFlushIntervalMs realTimePersistRocksDBConfig rocksdbCQDoubleWriteEnable
        rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec
    """,
        "subscriptions and offsets are kept as in 4.9": """
        broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond consumerFallbehindThreshold
        consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep disableConsumeIfConsumerReadSlowly
        enableBroadcastOffsetStore enableCleanExpiredOffset flushConsumerOffsetHistoryInterval
        realTimeNotifyConsumerChange rejectPullConsumerEnable subscriptionExpiredTimeout useStaticSubscription
    """,
        "the settings file is named by the option -c": "brokerConfigPath",
        "tiered storage (5.x) is not built in": """
        cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable
        commitLogRollingInterval commitLogRollingMinimumSize dataReadAheadEnable globalColdReadThreshold
        objectStoreAccessKey objectStoreBucket objectStoreEndpoint objectStoreSecretKey readAheadCacheEnable
        readAheadCacheExpireDuration readAheadCacheSizeThresholdRate readAheadMessageCountThreshold
        readAheadMessageSizeThreshold recordGetMessageResult tieredBackendServiceProvider
        tieredMetadataServiceProvider tieredStorageLevel tieredStoreCommitLogMaxSize tieredStoreConsumeQueueMaxSize
        tieredStoreCrcCheckEnable tieredStoreDeleteFileEnable tieredStoreDeleteFileInterval tieredStoreFilePath
        tieredStoreFileReservedTime tieredStoreGroupCommit tieredStoreGroupCommitCount tieredStoreGroupCommitSize
        tieredStoreGroupCommitTimeout tieredStoreIndexFileMaxHashSlotNum tieredStoreIndexFileMaxIndexNum
        tieredStoreMaxGroupCommitCount tieredStoreMaxPendingLimit usePIDColdCtrStrategy
    """,
        "the broker's own connections to name servers have no such option": """
        channelNotActiveInterval clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientSocketRcvBufSize
        clientSocketSndBufSize enableReconnectForGoAway maxReconnectIntervalTimeSeconds scanAvailableNameSrv
        socksProxyConfig
    """,
        "consume queues and index are written with each message and checked at every start": """
        correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval deleteConsumeQueueFilesInterval
        disappearTimeAfterStart enabledAppendPropCRC forceVerifyPropCRC maxChecksumRange maxConsumeQueueScan
        maxRecoveryCommitlogFiles messageIndexSafe putMsgIndexHightWater recheckReputOffsetFromCq
        travelCqFileNumWhenGetMessage
    """,
        "a deleted file's name disappears at once, its bytes when no reader has it mapped any more": """
        destroyMapedFileIntervalForcibly redeleteHangedFileInterval
    """,
        "consume queue files are deleted together with the commit log files that they point to": """
        logicalDiskSpaceCleanForciblyThreshold maxBatchDeleteFilesNum
    """,
        "a group's retry topic stays when a topic is deleted": "clearRetryTopicWhenDeleteTopic",
        "compacted and batch topics (5.x) are not built in": """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal enableBatchPush
        enableCompaction mapperFileSizeBatchConsumeQueue maxOffsetMapSize searchBcqByCacheEnable
    """,
        "requests cannot change settings that need a restart": "configBlackList",
        "the system's groups always exist": "enableCreateSysGroup",
        "light message queues are not built in": "enableLmq enableMultiDispatch maxLmqConsumeQueueNum",
        "message types of topics are not checked": "enableMixedMessageType",
        "the operating system chooses socket buffers and backlog": """
        enableNetWorkFlowControl enableShutdownGracefully serverSocketBacklog serverSocketRcvBufSize
        serverSocketSndBufSize shutdownWaitTimeSeconds writeBufferLowWaterMark
    """,
        "this feature is always on": "enableRegisterProducer litePullMessageEnable",
        "delayed messages are delivered as they come due": """
        enableScheduleAsyncDeliver maxDelayTime scheduleAsyncDeliverMaxPendingLimit
        scheduleAsyncDeliverMaxResendNum2Blocked
    """,
        "every registration carries all topics": """
        enableSingleTopicRegister enableSplitRegistration splitRegistrationSize
    """,
        "name servers are given by namesrvAddr, not looked up": """
        fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
        updateNameServerAddrPeriod
    """,
        "one task delivers timed messages and retries until it succeeds; they are not counted by topic": """
        timerColdDataCheckIntervalMs timerEnableCheckMetrics timerEnableRetryUntilSuccess timerInterceptDelayLevel
        timerMetricSmallThreshold timerProgressLogIntervalMs timerSkipUnknownError timerStopEnqueue
    """,
        "a pull gets as much from the disk as from memory, see maxTransferCountOnMessageInMemory": """
        maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk pullBatchMaxMessageCount
    """,
        "the store takes no plugins": "messageStorePlugIn",
        "the commit log lives in one directory": "readOnlyCommitLogStorePaths",
        "each commit or rollback is recorded at once, in the format of 4.9": """
        transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize
    """,
        "system topics are always protected": "validateSystemTopicWhenUpdateTopic",
        "since RocketMQ 4.6 these keys are mappedFileSizeCommitLog and mappedFileSizeConsumeQueue": """
        mapedFileSizeCommitLog mapedFileSizeConsumeQueue
    """,
    }
)
"""Keys that a broker accepts with a warning, and the reason why each has no effect."""

NAME_SERVER_MEANINGLESS = _by_key(
    {
        "a name server opens no connections": """
        tls.client.authServer tls.client.certPath tls.client.checkHostName tls.client.keyPassword tls.client.keyPath
        tls.client.trustCertPath
    """,
        "one event loop serves all requests, there are no thread pools and queues": """
        clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity defaultThreadPoolNums
        defaultThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads
        serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
        serverSelectorThreads serverWorkerThreads unRegisterBrokerQueueCapacity useEpollNativeSelector
    """,
        "it selects an environment of RocketMQ's developers": "clusterTest productEnvName",
        "requests cannot change settings that need a restart": "configBlackList",
        "there is no controller, and no slave acts as a master": """
        enableControllerInNamesrv notifyMinBrokerIdChanged supportActingMaster
    """,
        "the operating system chooses socket buffers and backlog": """
        enableShutdownGracefully serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
        shutdownWaitTimeSeconds writeBufferHighWaterMark writeBufferLowWaterMark
    """,
        "routes are answered from the start": "needWaitForService waitSecondsForService",
    }
)
"""Keys that a name server accepts with a warning, and the reason why each has no effect."""

BROKER_REFUSED = {
    "enableDLegerCommitLog": Refused("false", "replication by DLedger is not built in"),
    "enableControllerMode": Refused("false", "replication by a controller is not built in"),
    "storeType": Refused("default", "the store is Apache's default file store"),
}
"""Keys that a broker refuses, unless they have their harmless value: other values ask for what must not be ignored."""

BROKER_REPORTED = {key: rule.harmless for key, rule in BROKER_REFUSED.items()} | {"filterServerNums": "0"}
"""Keys that a broker reports in addition to its settings, with their values: mqadmin 4.9 exports no settings without
them."""
