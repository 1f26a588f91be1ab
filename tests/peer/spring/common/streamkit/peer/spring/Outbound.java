package streamkit.peer.spring;

import org.springframework.messaging.Message;

/** How an application sends through an output binding; each generation has its own way. */
interface Outbound {
    boolean send(String binding, Message<?> message);

    /** The payload of a message that carries nothing, where there are such. */
    default Object nothing() {
        throw new UnsupportedOperationException("a message of this system has a payload");
    }
}
