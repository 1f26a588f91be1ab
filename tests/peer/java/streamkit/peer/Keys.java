package streamkit.peer;

import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** The keys with which Apache's client signs its requests. */
final class Keys {
    private Keys() {}

    /** Returns the hook that signs with the command's keys; null if it has none. */
    static RPCHook hook(Arguments command) {
        if (!command.has("accessKey")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(
                command.text("accessKey"), command.text("secretKey"), command.text("securityToken", null)));
    }

    /** Signs requests as Apache's client does; the result has the header fields of each. */
    static Object sign(Arguments command) {
        return command.objects("requests").stream().map(request -> {
            RemotingCommand signed = RemotingCommand.createRequestCommand(request.integer("code", 0), null);
            for (Map.Entry<String, String> field : request.pairs("fields").entrySet()) {
                signed.addExtField(field.getKey(), field.getValue());
            }
            if (request.has("body")) {
                signed.setBody(Base64.getDecoder().decode(request.text("body")));
            }
            hook(command).doBeforeRequest("", signed);
            return signed.getExtFields();
        }).collect(java.util.stream.Collectors.toList());
    }
}
