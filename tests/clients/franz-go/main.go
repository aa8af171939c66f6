// Copies a topic into another exactly once, until it is killed: franz-go's transactions, in a group.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type wanted struct {
	Bootstrap, Source, Target string
	Batch                     int
}

func main() {
	if len(os.Args) != 3 || os.Args[1] != "copy" {
		fmt.Fprintln(os.Stderr, "usage: franz-go copy JSON")
		os.Exit(2)
	}
	var how wanted
	if err := json.Unmarshal([]byte(os.Args[2]), &how); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for {
		say("begins anew: %v", live(how))
		time.Sleep(200 * time.Millisecond)
	}
}

// live is one session: until an error that the session cannot go on from.
func live(how wanted) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(how.Bootstrap),
		kgo.TransactionalID("copier-"+how.Source),
		kgo.TransactionTimeout(20*time.Second),
		kgo.DefaultProduceTopic(how.Target),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup("copy-"+how.Source),
		kgo.ConsumeTopics(how.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(10*time.Second),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx := context.Background()
	for number := 1; ; number++ {
		polling, cancel := context.WithTimeout(ctx, time.Second)
		fetches := session.PollRecords(polling, how.Batch)
		cancel()
		if fetches.Empty() {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		failed := kgo.AbortingFirstErrPromise(session.Client())
		count := 0
		fetches.EachRecord(func(record *kgo.Record) {
			count++
			session.Produce(ctx, &kgo.Record{Key: record.Key, Value: record.Value}, failed.Promise())
		})
		wish := kgo.TryCommit
		if failed.Err() != nil || number%8 == 0 {
			wish = kgo.TryAbort
		}
		committed, err := session.End(ctx, wish)
		if err != nil {
			return err
		}
		if committed {
			say("copied %d", count)
		} else {
			say("aborted")
		}
	}
}

func say(form string, values ...any) {
	fmt.Printf("%d "+form+"\n", append([]any{time.Now().UnixMilli()}, values...)...)
}
