// A program that drives rocketmq-client-go for the peer tests: a JSON object a line in, a JSON object a line out.
//
// A command {"id": 7, "do": "send", ...} is answered by {"id": 7, "result": ...} or {"id": 7, "error": text,
// "type": "error", "code": -1}. What consumers receive comes as {"event": "message", "source": name, ...}. The
// program ends with its standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type message struct {
	Body       string
	Tags       string
	Keys       []string
	Properties map[string]string
	DelayLevel int
	ShardBy    string
}

type command struct {
	Id         int
	Do         string
	Name       string
	Group      string
	NameServer string
	Topic      string
	Expression string
	Mode       string
	Broadcast  bool
	Instance   string
	FailTimes  int32
	MaxTimes   int32
	AccessKey  string
	SecretKey  string
	Messages   []message
}

var (
	output  sync.Mutex
	running sync.Map // name -> rocketmq.Producer or rocketmq.PushConsumer
)

func main() {
	rlog.SetLogLevel("error")
	fmt.Println("READY")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var asked command
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		go answer(asked)
	}
}

func answer(asked command) {
	result, err := run(asked)
	if err != nil {
		tell(map[string]any{"id": asked.Id, "error": err.Error(), "type": "error", "code": -1})
		return
	}
	tell(map[string]any{"id": asked.Id, "result": result})
}

func tell(object map[string]any) {
	line, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	fmt.Println(string(line))
}

func run(asked command) (any, error) {
	switch asked.Do {
	case "startProducer":
		return nil, startProducer(asked)
	case "send":
		return send(asked)
	case "startConsumer":
		return nil, startConsumer(asked)
	case "stop":
		started, _ := running.LoadAndDelete(asked.Name)
		return nil, started.(interface{ Shutdown() error }).Shutdown()
	}
	return nil, fmt.Errorf("unknown command %s", asked.Do)
}

// credentials returns the keys that requests are signed with; without keys they are not signed.
func credentials(asked command) primitive.Credentials {
	return primitive.Credentials{AccessKey: asked.AccessKey, SecretKey: asked.SecretKey}
}

func startProducer(asked command) error {
	started, err := rocketmq.NewProducer(
		producer.WithCredentials(credentials(asked)),
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{asked.NameServer})),
		producer.WithGroupName(asked.Group),
		producer.WithInstanceName(asked.Name),
		producer.WithQueueSelector(producer.NewHashQueueSelector()),
		// What is sent again after a time-out may be there twice.
		producer.WithSendMsgTimeout(30*time.Second),
	)
	if err != nil {
		return err
	}
	running.Store(asked.Name, started)
	return started.Start()
}

// send returns what the broker answered to each message, by the mode: sync, async or oneway.
func send(asked command) (any, error) {
	started, _ := running.Load(asked.Name)
	through := started.(rocketmq.Producer)
	results := make([]any, 0, len(asked.Messages))
	for _, fields := range asked.Messages {
		outgoing := read(asked.Topic, fields)
		within, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		switch asked.Mode {
		case "oneway":
			if err := through.SendOneWay(within, outgoing); err != nil {
				cancel()
				return nil, err
			}
		case "async":
			answered := make(chan any, 1)
			err := through.SendAsync(within, func(_ context.Context, result *primitive.SendResult, err error) {
				if err != nil {
					answered <- err
				} else {
					answered <- written(result)
				}
			}, outgoing)
			if err != nil {
				cancel()
				return nil, err
			}
			result := <-answered
			if failure, failed := result.(error); failed {
				cancel()
				return nil, failure
			}
			results = append(results, result)
		default:
			result, err := through.SendSync(within, outgoing)
			if err != nil {
				cancel()
				return nil, err
			}
			results = append(results, written(result))
		}
		cancel()
	}
	return results, nil
}

func read(topic string, fields message) *primitive.Message {
	outgoing := primitive.NewMessage(topic, []byte(fields.Body))
	if fields.Tags != "" {
		outgoing.WithTag(fields.Tags)
	}
	if len(fields.Keys) > 0 {
		outgoing.WithKeys(fields.Keys)
	}
	if fields.DelayLevel > 0 {
		outgoing.WithDelayTimeLevel(fields.DelayLevel)
	}
	if fields.ShardBy != "" {
		outgoing.WithShardingKey(fields.ShardBy)
	}
	for name, value := range fields.Properties {
		outgoing.WithProperty(name, value)
	}
	return outgoing
}

func written(result *primitive.SendResult) map[string]any {
	return map[string]any{
		"ok": result.Status == primitive.SendOK, "id": result.MsgID, "offsetId": result.OffsetMsgID,
		"queue": result.MessageQueue.QueueId, "offset": result.QueueOffset,
	}
}

func startConsumer(asked command) error {
	model := consumer.Clustering
	if asked.Broadcast {
		model = consumer.BroadCasting
	}
	options := []consumer.Option{
		consumer.WithCredentials(credentials(asked)),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{asked.NameServer})),
		consumer.WithGroupName(asked.Group),
		consumer.WithInstance(asked.Instance),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(asked.Mode == "orderly"),
		consumer.WithSuspendCurrentQueueTimeMillis(100 * time.Millisecond),
	}
	if asked.MaxTimes > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(asked.MaxTimes))
	}
	started, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	listen := func(_ context.Context, received ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		failed := false
		for _, each := range received {
			report(asked.Name, each)
			failed = failed || each.ReconsumeTimes < asked.FailTimes
		}
		if failed && asked.Mode == "orderly" {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if failed {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: asked.Expression}
	if err := started.Subscribe(asked.Topic, selector, listen); err != nil {
		return err
	}
	running.Store(asked.Name, started)
	return started.Start()
}

func report(name string, received *primitive.MessageExt) {
	tell(map[string]any{
		"event": "message", "source": name, "topic": received.Topic, "body": string(received.Body),
		"tags": received.GetTags(), "keys": received.GetKeys(), "properties": received.GetProperties(),
		"queue": received.Queue.QueueId, "offset": received.QueueOffset,
		"reconsumeTimes": received.ReconsumeTimes, "id": received.MsgId,
	})
}
