"""Apache's keys that this broker does not honour, and why.

Every key of Apache RocketMQ 4.9.7 and 5.3.3 (BrokerConfig, BrokerIdentity, MessageStoreConfig,
NettyServerConfig, NettyClientConfig, AuthConfig, NamesrvConfig, and the tiered store's MessageStoreConfig) is a
field in `rocket_broker.settings.broker_settings` or stands here: meaningless ones are accepted with a warning,
refused ones may only have their harmless value. What the broker sets itself is no key (AuthConfig's clusterName and
configName).
"""

from rocket_broker.settings.apache_settings import Refused

__all__ = ["BROKER_MEANINGLESS", "BROKER_REFUSED", "BROKER_TOLD", "NAME_SERVER_MEANINGLESS"]

_BROKER = {
    "messages go straight to the page cache, or through the transient store pool": """
        accessMessageInMemoryHotRatio cleanSwapedMapInterval commitLogForceSwapMapInterval
        commitLogSwapMapInterval commitLogSwapMapReserveFileNum flushCommitLogTimed
        flushLeastPagesWhenWarmMapedFile logicQueueForceSwapMapInterval logicQueueSwapMapInterval
        logicQueueSwapMapReserveFileNum mappedFileSwapEnable putConsumeQueueDataByFileChannel
        readUnCommitted wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable
    """,
    "these statistics are not kept": """
        accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats commercialBaseCount
        commercialBigCount commercialEnable commercialSizePerMsg commercialTimerCount commercialTransCount
        diskFallRecorded enableDetailStat enableLmqStats enableScheduleMessageStats estimateAccumulation
        isolateLogEnable maxStatsIdleTimeInMinutes metricGrpcExporterIntervalInMills
        metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType
        metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
        metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort printChannelGroups
        printChannelGroupsMinNum
    """,
    "one event loop serves all requests, there are no thread pools and queues": """
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums
        adminBrokerThreadPoolQueueCapacity asyncSendEnable batchDispatchRequestThreadPoolNums
        clientAsyncSemaphoreValue clientCallbackExecutorThreads
        clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue
        clientPooledByteBufAllocatorEnable clientWorkerThreads compactionThreadNum
        consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity debugLockEnable
        disableCallbackExecutor disableNettyWorkerGroup dispatchCqCacheNum dispatchCqThreads
        dispatchFromSenderThread enableAsyncReput enableBuildConsumeQueueConcurrently
        enableFastChannelEventProcess endTransactionPoolQueueCapacity endTransactionThreadPoolNums
        heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity highSpeedMode litePullMessageThreadPoolNums
        litePullThreadPoolQueueCapacity loadBalanceProcessorThreadPoolNums
        loadBalanceThreadPoolQueueCapacity maxAsyncPutMessageRequests
        processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
        putMessageFutureThreadPoolNums putMessageTimeout putThreadPoolQueueCapacity
        queryMessageThreadPoolNums queryThreadPoolQueueCapacity recoverConcurrently recoverThreadPoolNums
        replyThreadPoolQueueCapacity sampleCountThreshold sampleSteps sendMessageThreadPoolNums
        sendThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads
        serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
        serverSelectorThreads serverWorkerThreads spinLockCollisionRetreatOptimalDegree
        timerGetMessageThreadNum timerPutMessageThreadNum topicQueueLockNum transferMsgByHeap useABSLock
        useEpollNativeSelector useReentrantLockWhenPutMessage
    """,
    "a write that takes long shows as time in the queue: see waitTimeMillsInSendQueue": """
        osPageCacheBusyTimeOutMills
    """,
    "access control is not built in": """
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authenticationMetadataProvider
        authenticationProvider authenticationStrategy authenticationWhitelist authorizationMetadataProvider
        authorizationProvider authorizationStrategy authorizationWhitelist initAuthenticationUser
        innerClientAuthenticationCredentials migrateAuthFromV1Enabled statefulAuthenticationCacheExpiredSecond
        statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond
        statefulAuthorizationCacheMaxNum userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
    """,
    "replication is not built in, every broker is a master": """
        allAckInSyncStateSet asyncLearner brokerElectionPriority brokerHeartbeatInterval brokerIP2
        brokerNotActiveTimeoutMillis checkSyncStateSetPeriod cleanOfflineBrokerInterval
        compatibleWithOldNameSrv controllerAddr controllerHeartBeatTimeoutMills dLegerGroup dLegerPeers
        dLegerSelfId duplicationEnable enableAutoInSyncReplicas enableRemoteEscape enableSlaveActingMaster
        fetchControllerAddrByDnsLookup forwardTimeout haFlowControlEnable haHousekeepingInterval
        haListenPort haMasterAddress haMaxGapNotInSync haMaxTimeSlaveNotCatchup haSendHeartbeatInterval
        haSlaveFallbehindMax haTransferBatchSize inBrokerContainer inSyncReplicas lockInStrictMode
        maxHaTransferByteInSecond maxSlaveResendLength minInSyncReplicas offsetCheckInSlave
        preferredLeaderId replicasPerDiskPartition sendHeartbeatTimeoutMillis skipPreOnline
        slaveTimeout storePathBrokerIdentity storePathDLedgerCommitLog storePathEpochFile
        syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod syncControllerMetadataPeriod syncFromLastFile
        syncMasterFlushOffsetWhenStartup totalReplicas
    """,
    "pop consumption (5.x) is not built in": """
        allowRecallWhenBrokerNotWriteable appendAckAsync appendCkAsync defaultMessageRequestMode
        defaultPopShareQueueNum enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
        enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold enableRetryTopicV2
        enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem loadBalancePollNameServerInterval
        maxPopPollingSize popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
        popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
        popConsumerKVServiceLog popFromRetryProbability popInflightMessageThreshold
        popLongPollingForceNotifyInterval popPollingMapSize popPollingSize popResponseReturnActualRetryTopic
        popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
        retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum
        reviveScanTime serverLoadBalancerEnable skipWhenCKRePutReachMaxTimes waitTimeMillsInAckQueue
    """,
    "a topic's name has at most 127 characters": """
        autoMessageVersionOnTopicLen maxTopicLength
    """,
    "filtering by property looks into the messages, there is no extended consume queue": """
        bitMapLengthConsumeQueueExt enableCalcFilterBitMap enableConsumeQueueExt
        expectConsumerNumUseFilter mappedFileSizeConsumeQueueExt maxErrorRateOfBloomFilter
    """,
    "a pull looks at 800 messages at most, see docs/protocol.md": """
        maxFilterMessageSize
    """,
    "filter servers left RocketMQ long ago": """
        filterServerNums
    """,
    "tables and queues are Apache's default files, not RocksDB": """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin configManagerVersion
        enableRocksDBLog memTableFlushIntervalMs realTimePersistRocksDBConfig rocksdbCQDoubleWriteEnable
        rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
        statRocksDBCQIntervalSec
    """,
    "subscriptions and their offsets are kept as 4.9 keeps them": """
        broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond consumerFallbehindThreshold
        consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep disableConsumeIfConsumerReadSlowly
        enableBroadcastOffsetStore enableCleanExpiredOffset flushConsumerOffsetHistoryInterval
        realTimeNotifyConsumerChange rejectPullConsumerEnable subscriptionExpiredTimeout
        useStaticSubscription
    """,
    "the settings file is named by the option -c": """
        brokerConfigPath
    """,
    "tiered storage (5.x) is not built in": """
        cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable
        commitLogRollingInterval commitLogRollingMinimumSize dataReadAheadEnable globalColdReadThreshold
        objectStoreAccessKey objectStoreBucket objectStoreEndpoint objectStoreSecretKey readAheadCacheEnable
        readAheadCacheExpireDuration readAheadCacheSizeThresholdRate readAheadMessageCountThreshold
        readAheadMessageSizeThreshold recordGetMessageResult tieredBackendServiceProvider
        tieredMetadataServiceProvider tieredStorageLevel tieredStoreCommitLogMaxSize
        tieredStoreConsumeQueueMaxSize tieredStoreCrcCheckEnable tieredStoreDeleteFileEnable
        tieredStoreDeleteFileInterval tieredStoreFilePath tieredStoreFileReservedTime tieredStoreGroupCommit
        tieredStoreGroupCommitCount tieredStoreGroupCommitSize tieredStoreGroupCommitTimeout
        tieredStoreIndexFileMaxHashSlotNum tieredStoreIndexFileMaxIndexNum tieredStoreMaxGroupCommitCount
        tieredStoreMaxPendingLimit usePIDColdCtrStrategy
    """,
    "the broker's own connections to name servers have no such option": """
        channelNotActiveInterval clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
        clientSocketRcvBufSize clientSocketSndBufSize enableReconnectForGoAway
        maxReconnectIntervalTimeSeconds scanAvailableNameSrv socksProxyConfig useTLS
    """,
    "consume queues and index are built with each append and checked at every start": """
        correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval
        deleteConsumeQueueFilesInterval disappearTimeAfterStart enabledAppendPropCRC forceVerifyPropCRC
        maxChecksumRange maxConsumeQueueScan maxRecoveryCommitlogFiles messageIndexSafe
        putMsgIndexHightWater recheckReputOffsetFromCq travelCqFileNumWhenGetMessage
    """,
    "a file's name goes at once, and its bytes when nobody reads them any more": """
        destroyMapedFileIntervalForcibly redeleteHangedFileInterval
    """,
    "consume queues are deleted with the log that they lead to": """
        logicalDiskSpaceCleanForciblyThreshold maxBatchDeleteFilesNum
    """,
    "a group's retry topic stays when a topic is deleted": """
        clearRetryTopicWhenDeleteTopic
    """,
    "compacted and batch topics (5.x) are not built in": """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal enableBatchPush
        enableCompaction mapperFileSizeBatchConsumeQueue maxOffsetMapSize searchBcqByCacheEnable
    """,
    "settings that need a restart refuse to change while the server runs": """
        configBlackList
    """,
    "the system's groups always exist": """
        enableCreateSysGroup
    """,
    "light message queues are not built in": """
        enableLmq enableMultiDispatch maxLmqConsumeQueueNum
    """,
    "topics have no message type": """
        enableMixedMessageType
    """,
    "the operating system chooses socket buffers and backlog": """
        enableNetWorkFlowControl enableShutdownGracefully serverSocketBacklog serverSocketRcvBufSize
        serverSocketSndBufSize shutdownWaitTimeSeconds writeBufferLowWaterMark
    """,
    "this is always on": """
        enableRegisterProducer litePullMessageEnable
    """,
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
    "timers are delivered by one loop, which tries until it succeeds; they are not counted by topic": """
        timerColdDataCheckIntervalMs timerEnableCheckMetrics timerEnableRetryUntilSuccess
        timerInterceptDelayLevel timerMetricSmallThreshold timerProgressLogIntervalMs timerSkipUnknownError
        timerStopEnqueue
    """,
    "a pull gets as much from the disk as from memory, see maxTransferCountOnMessageInMemory": """
        maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk pullBatchMaxMessageCount
    """,
    "the store takes no plugins": """
        messageStorePlugIn
    """,
    "the commit log lives in one directory": """
        readOnlyCommitLogStorePaths
    """,
    "each end of a transaction is noted at once, in the form of 4.9": """
        transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize
    """,
    "nothing is read from an installation directory": """
        rocketmqHome
    """,
    "system topics are always protected": """
        validateSystemTopicWhenUpdateTopic
    """,
    "it is spelt with mapp since RocketMQ 4.6: mappedFileSizeCommitLog, mappedFileSizeConsumeQueue": """
        mapedFileSizeCommitLog mapedFileSizeConsumeQueue
    """,
}

_NAME_SERVER = {
    "one event loop serves all requests, there are no thread pools and queues": """
        clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity defaultThreadPoolNums
        defaultThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads
        serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
        serverSelectorThreads serverWorkerThreads unRegisterBrokerQueueCapacity useEpollNativeSelector
    """,
    "this environment switch belongs to its makers": """
        clusterTest productEnvName
    """,
    "settings that need a restart refuse to change while the server runs": """
        configBlackList
    """,
    "replication is not built in, every broker is a master": """
        enableControllerInNamesrv notifyMinBrokerIdChanged supportActingMaster
    """,
    "the operating system chooses socket buffers and backlog": """
        enableShutdownGracefully serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
        shutdownWaitTimeSeconds writeBufferHighWaterMark writeBufferLowWaterMark
    """,
    "routes are answered from the start": """
        needWaitForService waitSecondsForService
    """,
    "nothing is read from an installation directory": """
        rocketmqHome
    """,
}


def _by_key(groups: dict[str, str]) -> dict[str, str]:
    return {key: reason for reason, keys in groups.items() for key in keys.split()}


BROKER_MEANINGLESS = _by_key(_BROKER)
"""Key of the broker -> why it does nothing here."""

NAME_SERVER_MEANINGLESS = _by_key(_NAME_SERVER)
"""Key of the name server -> why it does nothing here."""

_OPEN = Refused("false", "access control is not built in, and ignoring this would let everybody in")

BROKER_REFUSED = {
    "aclEnable": _OPEN,
    "authenticationEnabled": _OPEN,
    "authorizationEnabled": _OPEN,
    "brokerRole": Refused("ASYNC_MASTER", "replication is not built in, every broker is a master"),
    "enableDLegerCommitLog": Refused("false", "replication by DLedger is not built in"),
    "enableControllerMode": Refused("false", "replication by a controller is not built in"),
    "storeType": Refused("default", "the store is Apache's default file store"),
}
"""Key whose other values ask for something that must not be ignored."""

BROKER_TOLD = {key: rule.harmless for key, rule in BROKER_REFUSED.items()} | {
    "filterServerNums": "0",
    "useTLS": "false",
}
"""Key -> what the broker always is, for who asks for its settings: mqadmin 4.9 exports none of them without these."""
