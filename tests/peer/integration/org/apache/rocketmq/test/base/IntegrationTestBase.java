package org.apache.rocketmq.test.base;

import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.util.MQAdmin;

/**
 * Stands in for the class of Apache's tests that starts their servers: it starts none, and describes the bundled ones,
 * which run already. Apache's BaseConf asks for nothing else, and only for names and the port.
 */
public class IntegrationTestBase {
    private static final int QUEUES = 8;
    /** Each waits for the topic for half a minute. */
    private static final int ATTEMPTS = 3;

    public static NamesrvController createAndStartNamesrv() {
        NettyServerConfig listening = new NettyServerConfig();
        listening.setListenPort(Integer.getInteger("streamkit.nameServerPort"));
        return new NamesrvController(new NamesrvConfig(), listening);
    }

    public static BrokerController createAndStartBroker(String nameServer) {
        BrokerConfig broker = new BrokerConfig();
        broker.setBrokerClusterName("DefaultCluster");
        broker.setBrokerName("broker-a");
        broker.setNamesrvAddr(nameServer);
        MessageStoreConfig unused = new MessageStoreConfig();
        return new BrokerController(broker, new NettyServerConfig(), new NettyClientConfig(), unused);
    }

    public static boolean initTopic(String topic, String nameServer, String cluster) {
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            if (MQAdmin.createTopic(nameServer, cluster, topic, QUEUES)) {
                return true;
            }
        }
        throw new IllegalStateException("topic " + topic + " was not created");
    }
}
