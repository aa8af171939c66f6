// sarama, as it comes from the module proxy: `sarama VERB JSON`, one line of JSON as the answer. The verbs are those of
// tests/support/other_clients.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type wanted struct {
	Bootstrap  string  `json:"bootstrap"`
	Topic      string  `json:"topic"`
	Group      string  `json:"group"`
	Count      int     `json:"count"`
	Batch      int     `json:"batch"`
	Codec      string  `json:"codec"`
	Acks       *int    `json:"acks"`
	Idempotent bool    `json:"idempotent"`
	Prefix     string  `json:"prefix"`
	Version    string  `json:"version"`
	Times      []int64 `json:"times"`
	Time       int64   `json:"time"`
	Members    int     `json:"members"`
	PauseMs    int     `json:"pause_ms"`
	SettleMs   int     `json:"settle_ms"`
}

type answer map[string]any

var codecs = map[string]sarama.CompressionCodec{
	"":       sarama.CompressionNone,
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func config(w wanted) *sarama.Config {
	made := sarama.NewConfig()
	made.ClientID = "sarama"
	made.Version = sarama.V2_8_0_0
	if w.Version != "" {
		version, err := sarama.ParseKafkaVersion(w.Version)
		check(err)
		made.Version = version
	}
	made.Metadata.AllowAutoTopicCreation = false
	made.ApiVersionsRequest = made.Version.IsAtLeast(sarama.V0_10_0_0)
	return made
}

func brokers(w wanted) []string { return strings.Split(w.Bootstrap, ",") }

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func produce(w wanted) answer {
	settings := config(w)
	settings.Producer.Compression = codecs[w.Codec]
	settings.Producer.RequiredAcks = sarama.WaitForAll
	if w.Acks != nil {
		settings.Producer.RequiredAcks = sarama.RequiredAcks(*w.Acks)
	}
	settings.Producer.Return.Successes = true
	settings.Producer.Retry.Max = 50
	settings.Producer.Retry.Backoff = 200 * time.Millisecond
	settings.Producer.Flush.MaxMessages = w.Batch
	if w.Idempotent {
		settings.Producer.Idempotent = true
		settings.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(brokers(w), settings)
	check(err)
	for from := 0; from < w.Count; from += w.Batch {
		var messages []*sarama.ProducerMessage
		for n := from; n < w.Count && n < from+w.Batch; n++ {
			message := &sarama.ProducerMessage{
				Topic: w.Topic,
				Key:   sarama.StringEncoder(fmt.Sprintf("k%d", n)),
				Value: sarama.StringEncoder(fmt.Sprintf("%s-%d", w.Prefix, n)),
			}
			if w.Times != nil {
				message.Timestamp = time.UnixMilli(w.Times[n])
			}
			if settings.Version.IsAtLeast(sarama.V0_11_0_0) {
				message.Headers = []sarama.RecordHeader{{Key: []byte("n"), Value: []byte(fmt.Sprint(n))}}
			}
			messages = append(messages, message)
		}
		err := producer.SendMessages(messages)
		var refused sarama.ProducerErrors
		if errors.As(err, &refused) {
			err = refused[0].Err
		}
		check(err)
		time.Sleep(time.Duration(w.PauseMs) * time.Millisecond)
	}
	check(producer.Close())
	return answer{"sent": w.Count}
}

type reader struct {
	mutex  sync.Mutex
	values []string
	shares map[int][]int32
}

type member struct {
	number int
	all    *reader
	topic  string
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.all.mutex.Lock()
	defer m.all.mutex.Unlock()
	m.all.shares[m.number] = session.Claims()[m.topic]
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			m.all.mutex.Lock()
			m.all.values = append(m.all.values, string(message.Value))
			m.all.mutex.Unlock()
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(w wanted) answer {
	settings := config(w)
	if !settings.Version.IsAtLeast(sarama.V0_10_2_0) {
		return consumePartitions(w, settings)
	}
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	count := w.Members
	if count == 0 {
		count = 1
	}
	all := &reader{shares: map[int][]int32{}}
	running, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	for number := 0; number < count; number++ {
		group, err := sarama.NewConsumerGroup(brokers(w), w.Group, settings)
		check(err)
		handler := &member{number, all, w.Topic}
		ended.Add(1)
		go func() {
			defer ended.Done()
			for running.Err() == nil {
				if err := group.Consume(running, []string{w.Topic}, handler); err != nil {
					break
				}
			}
			group.Close()
		}()
	}
	for enough := false; !enough; time.Sleep(50 * time.Millisecond) {
		all.mutex.Lock()
		enough = len(all.values) >= w.Count
		for number := 0; number < count; number++ {
			enough = enough && (w.Members == 0 || len(all.shares[number]) > 0)
		}
		all.mutex.Unlock()
	}
	time.Sleep(time.Duration(w.SettleMs) * time.Millisecond)
	stop()
	ended.Wait()
	shares := make([][]int32, count)
	for number := range shares {
		shares[number] = all.shares[number]
	}
	return answer{"values": all.values, "shares": shares}
}

// What sarama has before groups: a consumer per partition.
func consumePartitions(w wanted, settings *sarama.Config) answer {
	consumer, err := sarama.NewConsumer(brokers(w), settings)
	check(err)
	partitions, err := consumer.Partitions(w.Topic)
	check(err)
	found := make(chan string)
	for _, partition := range partitions {
		part, err := consumer.ConsumePartition(w.Topic, partition, sarama.OffsetOldest)
		check(err)
		go func() {
			for message := range part.Messages() {
				found <- string(message.Value)
			}
		}()
	}
	var values []string
	for len(values) < w.Count {
		values = append(values, <-found)
	}
	return answer{"values": values}
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
	admin, err := sarama.NewClusterAdmin(brokers(w), config(w))
	check(err)
	day, second := "86400000", "1000"
	detail := &sarama.TopicDetail{
		NumPartitions: 2, ReplicationFactor: 3, ConfigEntries: map[string]*string{"retention.ms": &day},
	}
	check(admin.CreateTopic(w.Topic, detail, false))
	retention := func() string {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{
			Type: sarama.TopicResource, Name: w.Topic, ConfigNames: []string{"retention.ms"},
		})
		if err != nil || len(entries) == 0 {
			return ""
		}
		return entries[0].Value
	}
	until(func() bool { return retention() == day })
	created := retention()
	check(admin.AlterConfig(sarama.TopicResource, w.Topic, map[string]*string{"retention.ms": &second}, false))
	until(func() bool { return retention() == second })
	altered := retention()
	check(admin.CreatePartitions(w.Topic, 3, nil, false))
	partitions := 0
	until(func() bool {
		found, err := admin.DescribeTopics([]string{w.Topic})
		if err == nil {
			partitions = len(found[0].Partitions)
		}
		return partitions == 3
	})
	known, _, err := admin.DescribeCluster()
	check(err)
	check(admin.DeleteTopic(w.Topic))
	gone := until(func() bool {
		topics, err := admin.ListTopics()
		_, there := topics[w.Topic]
		return err == nil && !there
	})
	check(admin.Close())
	return answer{"created": created, "altered": altered, "partitions": partitions, "brokers": len(known), "gone": gone}
}

func committed(w wanted) answer {
	admin, err := sarama.NewClusterAdmin(brokers(w), config(w))
	check(err)
	found, err := admin.ListConsumerGroupOffsets(w.Group, nil)
	check(err)
	offsets := []int64{}
	for _, block := range found.Blocks[w.Topic] {
		if block.Offset > 0 {
			offsets = append(offsets, block.Offset)
		}
	}
	groups, err := admin.DescribeConsumerGroups([]string{w.Group})
	check(err)
	check(admin.DeleteConsumerGroup(w.Group))
	return answer{"offsets": offsets, "state": groups[0].State}
}

func firstSince(w wanted) answer {
	client, err := sarama.NewClient(brokers(w), config(w))
	check(err)
	partitions, err := client.Partitions(w.Topic)
	check(err)
	sort.Slice(partitions, func(a, b int) bool { return partitions[a] < partitions[b] })
	offsets := []int64{}
	for _, partition := range partitions {
		offset, err := client.GetOffset(w.Topic, partition, w.Time)
		check(err)
		offsets = append(offsets, offset)
	}
	return answer{"offsets": offsets}
}

func transact(w wanted) answer {
	settings := config(w)
	settings.Producer.Idempotent = true
	settings.Producer.Return.Successes = true
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Net.MaxOpenRequests = 1
	settings.Producer.Transaction.ID = "sarama-transaction"
	producer, err := sarama.NewSyncProducer(brokers(w), settings)
	check(err)
	check(producer.BeginTxn())
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: w.Topic, Value: sarama.StringEncoder("v")})
	check(err)
	check(producer.CommitTxn())
	return answer{}
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
