// kafka-go, as it comes from the module proxy: `kafka-go VERB JSON`, one line of JSON as the answer. The verbs are those
// of tests/support/other_clients.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

type wanted struct {
	Bootstrap string  `json:"bootstrap"`
	Topic     string  `json:"topic"`
	Group     string  `json:"group"`
	Count     int     `json:"count"`
	Batch     int     `json:"batch"`
	Codec     string  `json:"codec"`
	Acks      *int    `json:"acks"`
	Prefix    string  `json:"prefix"`
	Times     []int64 `json:"times"`
	Time      int64   `json:"time"`
	Members   int     `json:"members"`
	PauseMs   int     `json:"pause_ms"`
	SettleMs  int     `json:"settle_ms"`
}

type answer map[string]any

var codecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func brokers(w wanted) []string { return strings.Split(w.Bootstrap, ",") }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func client(w wanted) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(brokers(w)...), Timeout: 10 * time.Second}
}

func produce(w wanted) answer {
	writer := &kafka.Writer{
		Addr:         kafka.TCP(brokers(w)...),
		Topic:        w.Topic,
		Balancer:     &kafka.Hash{},
		BatchSize:    w.Batch,
		BatchTimeout: 10 * time.Millisecond,
		Compression:  codecs[w.Codec],
		RequiredAcks: kafka.RequireAll,
		MaxAttempts:  100,
	}
	if w.Acks != nil {
		writer.RequiredAcks = kafka.RequiredAcks(*w.Acks)
	}
	for from := 0; from < w.Count; from += w.Batch {
		var messages []kafka.Message
		for n := from; n < w.Count && n < from+w.Batch; n++ {
			message := kafka.Message{
				Key:     []byte(fmt.Sprintf("k%d", n)),
				Value:   []byte(fmt.Sprintf("%s-%d", w.Prefix, n)),
				Headers: []kafka.Header{{Key: "n", Value: []byte(fmt.Sprint(n))}},
			}
			if w.Times != nil {
				message.Time = time.UnixMilli(w.Times[n])
			}
			messages = append(messages, message)
		}
		// A topic that was only just made is not known everywhere at once, which the writer does not try again for.
		var err error
		until(func() bool {
			err = writer.WriteMessages(context.Background(), messages...)
			return !errors.Is(err, kafka.UnknownTopicOrPartition)
		})
		check(err)
		time.Sleep(time.Duration(w.PauseMs) * time.Millisecond)
	}
	check(writer.Close())
	return answer{"sent": w.Count}
}

func consume(w wanted) answer {
	count := w.Members
	if count == 0 {
		count = 1
	}
	var mutex sync.Mutex
	values := []string{}
	parts := make([]map[int]bool, count)
	running, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	for number := 0; number < count; number++ {
		parts[number] = map[int]bool{}
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: brokers(w), GroupID: w.Group, Topic: w.Topic, StartOffset: kafka.FirstOffset,
			MaxWait: 200 * time.Millisecond, SessionTimeout: 10 * time.Second, RebalanceTimeout: 10 * time.Second,
		})
		own := parts[number]
		ended.Add(1)
		go func() {
			defer ended.Done()
			for {
				message, err := reader.FetchMessage(running)
				if err != nil {
					break
				}
				mutex.Lock()
				values = append(values, string(message.Value))
				own[message.Partition] = true
				mutex.Unlock()
				check(reader.CommitMessages(context.Background(), message))
			}
			reader.Close()
		}()
	}
	for enough := false; !enough; time.Sleep(50 * time.Millisecond) {
		mutex.Lock()
		enough = len(values) >= w.Count
		mutex.Unlock()
	}
	time.Sleep(time.Duration(w.SettleMs) * time.Millisecond)
	stop()
	ended.Wait()
	shares := make([][]int, count)
	for number, own := range parts {
		for partition := range own {
			shares[number] = append(shares[number], partition)
		}
	}
	return answer{"values": values, "shares": shares}
}

func until(look func() bool) bool {
	for tries := 0; tries < 100; tries++ {
		if look() {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

func administer(w wanted) answer {
	admin, background := client(w), context.Background()
	made, err := admin.CreateTopics(background, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: w.Topic, NumPartitions: 2, ReplicationFactor: 3,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "86400000"}},
	}}})
	check(err)
	check(made.Errors[w.Topic])
	retention := func() string {
		found, err := admin.DescribeConfigs(background, &kafka.DescribeConfigsRequest{
			Resources: []kafka.DescribeConfigRequestResource{{
				ResourceType: kafka.ResourceTypeTopic, ResourceName: w.Topic, ConfigNames: []string{"retention.ms"},
			}},
		})
		if err != nil || len(found.Resources) == 0 || len(found.Resources[0].ConfigEntries) == 0 {
			return ""
		}
		return found.Resources[0].ConfigEntries[0].ConfigValue
	}
	until(func() bool { return retention() == "86400000" })
	created := retention()
	changed, err := admin.IncrementalAlterConfigs(background, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: w.Topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{
				Name: "retention.ms", Value: "1000", ConfigOperation: kafka.ConfigOperationSet,
			}},
		}},
	})
	check(err)
	check(changed.Resources[0].Error)
	until(func() bool { return retention() == "1000" })
	altered := retention()
	grown, err := admin.CreatePartitions(background, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: w.Topic, Count: 3}},
	})
	check(err)
	check(grown.Errors[w.Topic])
	partitions, known := 0, 0
	until(func() bool {
		found, err := admin.Metadata(background, &kafka.MetadataRequest{Topics: []string{w.Topic}})
		if err == nil && len(found.Topics) == 1 {
			partitions, known = len(found.Topics[0].Partitions), len(found.Brokers)
		}
		return partitions == 3
	})
	deleted, err := admin.DeleteTopics(background, &kafka.DeleteTopicsRequest{Topics: []string{w.Topic}})
	check(err)
	check(deleted.Errors[w.Topic])
	gone := until(func() bool {
		found, err := admin.Metadata(background, &kafka.MetadataRequest{})
		if err != nil {
			return false
		}
		for _, topic := range found.Topics {
			if topic.Name == w.Topic {
				return false
			}
		}
		return true
	})
	return answer{"created": created, "altered": altered, "partitions": partitions, "brokers": known, "gone": gone}
}

func committed(w wanted) answer {
	admin, background := client(w), context.Background()
	found, err := admin.Metadata(background, &kafka.MetadataRequest{Topics: []string{w.Topic}})
	check(err)
	var asked []int
	for _, partition := range found.Topics[0].Partitions {
		asked = append(asked, partition.ID)
	}
	fetched, err := admin.OffsetFetch(background, &kafka.OffsetFetchRequest{
		GroupID: w.Group, Topics: map[string][]int{w.Topic: asked},
	})
	check(err)
	offsets := []int64{}
	for _, partition := range fetched.Topics[w.Topic] {
		if partition.CommittedOffset > 0 {
			offsets = append(offsets, partition.CommittedOffset)
		}
	}
	described, err := admin.DescribeGroups(background, &kafka.DescribeGroupsRequest{GroupIDs: []string{w.Group}})
	check(err)
	deleted, err := admin.DeleteGroups(background, &kafka.DeleteGroupsRequest{GroupIDs: []string{w.Group}})
	check(err)
	check(deleted.Errors[w.Group])
	return answer{"offsets": offsets, "state": described.Groups[0].GroupState}
}

func firstSince(w wanted) answer {
	admin, background := client(w), context.Background()
	found, err := admin.Metadata(background, &kafka.MetadataRequest{Topics: []string{w.Topic}})
	check(err)
	offsets := make([]int64, len(found.Topics[0].Partitions))
	for _, partition := range found.Topics[0].Partitions {
		listed, err := admin.ListOffsets(background, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{
				w.Topic: {kafka.TimeOffsetOf(partition.ID, time.UnixMilli(w.Time))},
			},
		})
		check(err)
		for offset := range listed.Topics[w.Topic][0].Offsets {
			offsets[partition.ID] = offset
		}
	}
	return answer{"offsets": offsets}
}

// Its writer knows no transactions: their requests, without a batch between them.
func transact(w wanted) answer {
	ctx, id := context.Background(), "kafka-go-transaction"
	var found *kafka.FindCoordinatorResponse
	for try := 0; ; try++ {
		var err error
		found, err = client(w).FindCoordinator(ctx, &kafka.FindCoordinatorRequest{
			Key: id, KeyType: kafka.CoordinatorKeyTypeTransaction,
		})
		check(err)
		// The topic of transactions' states is made at the first question.
		if found.Error == nil || try == 100 {
			check(found.Error)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	coordinator := kafka.TCP(net.JoinHostPort(found.Coordinator.Host, strconv.Itoa(int(found.Coordinator.Port))))
	var producer *kafka.InitProducerIDResponse
	for try := 0; ; try++ {
		var err error
		producer, err = client(w).InitProducerID(ctx, &kafka.InitProducerIDRequest{
			Addr: coordinator, TransactionalID: id, TransactionTimeoutMs: 60000,
		})
		check(err)
		if producer.Error == nil || try == 100 {
			check(producer.Error)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	added, err := client(w).AddPartitionsToTxn(ctx, &kafka.AddPartitionsToTxnRequest{
		Addr: coordinator, TransactionalID: id,
		ProducerID: producer.Producer.ProducerID, ProducerEpoch: producer.Producer.ProducerEpoch,
		Topics: map[string][]kafka.AddPartitionToTxn{w.Topic: {{Partition: 0}}},
	})
	check(err)
	for _, one := range added.Topics[w.Topic] {
		check(one.Error)
	}
	ended, err := client(w).EndTxn(ctx, &kafka.EndTxnRequest{
		Addr: coordinator, TransactionalID: id, Committed: true,
		ProducerID: producer.Producer.ProducerID, ProducerEpoch: producer.Producer.ProducerEpoch,
	})
	check(err)
	check(ended.Error)
	return answer{"sent": 0}
}

func main() {
	verbs := map[string]func(wanted) answer{
		"produce": produce, "consume": consume, "administer": administer, "committed": committed,
		"first_since": firstSince, "transact": transact,
	}
	var w wanted
	check(json.Unmarshal([]byte(os.Args[2]), &w))
	began := time.Now()
	found := answer{}
	func() {
		defer func() {
			if trouble := recover(); trouble != nil {
				err, isError := trouble.(error)
				if !isError {
					err = errors.New(fmt.Sprint(trouble))
				}
				found = answer{"error": err.Error()}
			}
		}()
		found = verbs[os.Args[1]](w)
	}()
	found["ms"] = time.Since(began).Milliseconds()
	line, err := json.Marshal(found)
	check(err)
	fmt.Println(string(line))
}
