// franz-go as a driver; the protocol is told in ../../clients/driver.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const adminTimeout = 20 * time.Second

type message struct {
	Key         []byte  `json:"key"`
	Value       []byte  `json:"value"`
	Headers     [][]any `json:"headers"`
	TimestampMs *int64  `json:"timestamp_ms"`
	Partition   *int32  `json:"partition"`
}

type command struct {
	Op                string            `json:"op"`
	Handle            string            `json:"handle"`
	Topic             string            `json:"topic"`
	Partition         int32             `json:"partition"`
	Messages          []json.RawMessage `json:"messages"`
	Codec             string            `json:"codec"`
	Acks              int               `json:"acks"`
	Idempotent        bool              `json:"idempotent"`
	EveryMs           int               `json:"every_ms"`
	LingerMs          int               `json:"linger_ms"`
	BytesMax          int32             `json:"bytes_max"`
	TimeoutMs         int               `json:"timeout_ms"`
	Assign            *[][]any          `json:"assign"`
	Topics            []string          `json:"topics"`
	Pattern           *string           `json:"pattern"`
	Group             *string           `json:"group"`
	InstanceID        *string           `json:"instance_id"`
	Strategy          string            `json:"strategy"`
	Reset             string            `json:"reset"`
	SessionMs         int               `json:"session_ms"`
	FetchBytesMax     *int32            `json:"fetch_bytes_max"`
	Count             int               `json:"count"`
	Offsets           [][]any           `json:"offsets"`
	Partitions        int32             `json:"partitions"`
	ReplicationFactor int16             `json:"replication_factor"`
	Configs           map[string]string `json:"configs"`
	Total             int               `json:"total"`
	Name              string            `json:"name"`
	Value             string            `json:"value"`
	At                any               `json:"at"`
	Before            int64             `json:"before"`
}

type row struct {
	Topic       string   `json:"topic"`
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	TimestampMs int64    `json:"timestamp_ms"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     [][2]any `json:"headers"`
}

type driver struct {
	bootstrap string
	producers map[string]*kgo.Client
	readers   map[string]*reader
	admin     *kadm.Client
}

// A consumer, what it read and nobody took yet, and what it owns.
type reader struct {
	client   *kgo.Client
	lock     sync.Mutex
	rows     []row
	failure  error
	came     chan struct{}
	assigned map[string]map[int32]bool
	revoked  [][]any
	ended    context.CancelFunc
	done     chan struct{}
}

func main() {
	d := &driver{bootstrap: os.Args[1], producers: map[string]*kgo.Client{}, readers: map[string]*reader{}}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			panic(err)
		}
		result, err := d.answer(&c)
		if err == nil {
			_ = output.Encode(map[string]any{"ok": result})
			continue
		}
		answer := map[string]any{"error": err.Error()}
		var known *kerr.Error
		if errors.As(err, &known) {
			answer["code"] = known.Code
		}
		_ = output.Encode(answer)
	}
}

func (d *driver) answer(c *command) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	switch c.Op {
	case "produce":
		return d.produce(ctx, c)
	case "open":
		return nil, d.open(ctx, c)
	case "poll":
		return d.readers[c.Handle].take(c.Count, time.Duration(c.TimeoutMs)*time.Millisecond)
	case "assignment":
		return d.readers[c.Handle].assignment(), nil
	case "revoked":
		r := d.readers[c.Handle]
		r.lock.Lock()
		defer r.lock.Unlock()
		return append([][]any{}, r.revoked...), nil
	case "commit":
		return nil, commit(ctx, d.readers[c.Handle].client, c.Offsets)
	case "close":
		r := d.readers[c.Handle]
		delete(d.readers, c.Handle)
		r.close()
		return nil, nil
	}
	if d.admin == nil {
		client, err := kgo.NewClient(kgo.SeedBrokers(d.bootstrap), kgo.RetryTimeout(adminTimeout), kgo.MetadataMinAge(50*time.Millisecond))
		if err != nil {
			return nil, err
		}
		d.admin = kadm.NewClient(client)
	}
	return d.administer(ctx, c)
}

func (d *driver) producer(c *command) (*kgo.Client, error) {
	// The limit is one of batches: a higher one than the broker's is for single large messages only.
	bytesMax := int32(1_000_000)
	for _, message := range c.Messages {
		if len(message) > int(bytesMax) {
			bytesMax = c.BytesMax
		}
	}
	key := fmt.Sprint(c.Codec, c.Acks, c.Idempotent, c.LingerMs, bytesMax, c.TimeoutMs)
	if found, ok := d.producers[key]; ok {
		return found, nil
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[int]kgo.Acks{-1: kgo.AllISRAcks(), 0: kgo.NoAck(), 1: kgo.LeaderAck()}
	options := []kgo.Opt{
		kgo.SeedBrokers(d.bootstrap),
		kgo.ProducerBatchCompression(codecs[c.Codec]),
		kgo.RequiredAcks(acks[c.Acks]),
		kgo.ProducerLinger(time.Duration(c.LingerMs) * time.Millisecond),
		kgo.ProducerBatchMaxBytes(bytesMax),
		kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(manualOrSticky()),
		kgo.UnknownTopicRetries(10),
	}
	if !c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err == nil {
		d.producers[key] = client
	}
	return client, err
}

// The given partition where there is one, else the default partitioner.
func manualOrSticky() kgo.Partitioner {
	return partitioner{kgo.StickyKeyPartitioner(nil)}
}

type partitioner struct{ inner kgo.Partitioner }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return topicPartitioner{p.inner.ForTopic(topic)}
}

type topicPartitioner struct{ inner kgo.TopicPartitioner }

func (p topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.inner.RequiresConsistency(r)
}

func (p topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.inner.Partition(r, n)
}

func (d *driver) produce(ctx context.Context, c *command) (any, error) {
	client, err := d.producer(c)
	if err != nil {
		return nil, err
	}
	placed := make([][2]int64, len(c.Messages))
	failures := make(chan error, len(c.Messages))
	var pending sync.WaitGroup
	for index, raw := range c.Messages {
		var m message
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, err
		}
		record := &kgo.Record{Topic: c.Topic, Key: m.Key, Value: m.Value, Partition: -1}
		if m.Partition != nil {
			record.Partition = *m.Partition
		}
		if m.TimestampMs != nil {
			record.Timestamp = time.UnixMilli(*m.TimestampMs)
		}
		for _, header := range m.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header[0].(string), Value: bytesOf(header[1])})
		}
		pending.Add(1)
		client.Produce(ctx, record, func(done *kgo.Record, err error) {
			defer pending.Done()
			if err != nil {
				failures <- err
				return
			}
			placed[index] = [2]int64{int64(done.Partition), done.Offset}
		})
		time.Sleep(time.Duration(c.EveryMs) * time.Millisecond)
	}
	pending.Wait()
	select {
	case err := <-failures:
		return nil, err
	default:
		return placed, nil
	}
}

// A header's value is base64 in a list of mixed types, which json does not decode by itself.
func bytesOf(value any) []byte {
	if value == nil {
		return nil
	}
	var data []byte
	text, _ := json.Marshal(value)
	_ = json.Unmarshal(text, &data)
	if data == nil {
		data = []byte{}
	}
	return data
}

func (d *driver) open(ctx context.Context, c *command) error {
	r := &reader{came: make(chan struct{}, 1), assigned: map[string]map[int32]bool{}, done: make(chan struct{})}
	reset := kgo.NewOffset().AtStart()
	if c.Reset == "latest" {
		reset = kgo.NewOffset().AtEnd()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(d.bootstrap),
		kgo.ConsumeResetOffset(reset),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.FetchMaxWait(500 * time.Millisecond),
	}
	if c.FetchBytesMax != nil {
		options = append(options, kgo.FetchMaxPartitionBytes(*c.FetchBytesMax))
	}
	if c.Assign != nil {
		starts := map[string]map[int32]kgo.Offset{}
		for _, each := range *c.Assign {
			topic, partition := each[0].(string), int32(each[1].(float64))
			at, err := d.start(ctx, topic, partition, each[2])
			if err != nil {
				return err
			}
			if starts[topic] == nil {
				starts[topic] = map[int32]kgo.Offset{}
			}
			starts[topic][partition] = kgo.NewOffset().At(at)
		}
		options = append(options, kgo.ConsumePartitions(starts))
	} else {
		options = append(options, r.membership(c)...)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	r.client = client
	background, cancel := context.WithCancel(context.Background())
	r.ended = cancel
	d.readers[c.Handle] = r
	go r.read(background)
	return nil
}

func (d *driver) start(ctx context.Context, topic string, partition int32, at any) (int64, error) {
	if number, ok := at.(float64); ok {
		return int64(number), nil
	}
	found, err := d.answer(&command{Op: "offset_at", Topic: topic, Partition: partition, At: at})
	if err != nil {
		return 0, err
	}
	return found.(int64), nil
}

func (r *reader) membership(c *command) []kgo.Opt {
	balancer := kgo.RangeBalancer()
	if c.Strategy == "cooperative-sticky" {
		balancer = kgo.CooperativeStickyBalancer()
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(*c.Group),
		kgo.Balancers(balancer),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(time.Duration(c.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) { r.gain(got) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { r.lose(lost) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { r.lose(lost) }),
	}
	if c.InstanceID != nil {
		options = append(options, kgo.InstanceID(*c.InstanceID))
	}
	if c.Pattern != nil {
		return append(options, kgo.ConsumeTopics(*c.Pattern), kgo.ConsumeRegex())
	}
	return append(options, kgo.ConsumeTopics(c.Topics...))
}

func (r *reader) gain(got map[string][]int32) {
	r.lock.Lock()
	defer r.lock.Unlock()
	for topic, partitions := range got {
		for _, partition := range partitions {
			if r.assigned[topic] == nil {
				r.assigned[topic] = map[int32]bool{}
			}
			r.assigned[topic][partition] = true
		}
	}
}

func (r *reader) lose(lost map[string][]int32) {
	r.lock.Lock()
	defer r.lock.Unlock()
	for topic, partitions := range lost {
		for _, partition := range partitions {
			delete(r.assigned[topic], partition)
			r.revoked = append(r.revoked, []any{topic, partition})
		}
	}
}

func (r *reader) assignment() [][]any {
	r.lock.Lock()
	defer r.lock.Unlock()
	rows := [][]any{}
	for topic, partitions := range r.assigned {
		for partition := range partitions {
			rows = append(rows, []any{topic, partition})
		}
	}
	return rows
}

func (r *reader) read(ctx context.Context) {
	defer close(r.done)
	for ctx.Err() == nil {
		fetches := r.client.PollFetches(ctx)
		r.lock.Lock()
		for _, failed := range fetches.Errors() {
			// A broker that is away comes back; what it refuses, it refuses for good.
			var known *kerr.Error
			if errors.As(failed.Err, &known) && !known.Retriable {
				r.failure = failed.Err
			}
		}
		fetches.EachRecord(func(record *kgo.Record) {
			headers := [][2]any{}
			for _, header := range record.Headers {
				headers = append(headers, [2]any{header.Key, header.Value})
			}
			r.rows = append(r.rows, row{
				record.Topic, record.Partition, record.Offset, record.Timestamp.UnixMilli(),
				record.Key, record.Value, headers,
			})
		})
		r.lock.Unlock()
		select {
		case r.came <- struct{}{}:
		default:
		}
	}
}

func (r *reader) take(count int, timeout time.Duration) ([]row, error) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		r.lock.Lock()
		if r.failure != nil {
			defer r.lock.Unlock()
			return nil, r.failure
		}
		if len(r.rows) >= count {
			taken := append([]row{}, r.rows[:count]...)
			r.rows = r.rows[count:]
			r.lock.Unlock()
			return taken, nil
		}
		r.lock.Unlock()
		select {
		case <-r.came:
		case <-timer.C:
			r.lock.Lock()
			defer r.lock.Unlock()
			taken := append([]row{}, r.rows...)
			r.rows = nil
			return taken, nil
		}
	}
}

func (r *reader) close() {
	r.ended()
	<-r.done
	r.client.Close()
}

func commit(ctx context.Context, client *kgo.Client, rows [][]any) error {
	group, generation := client.GroupMetadata()
	if generation < 0 {
		return fmt.Errorf("%s is not in its group", group)
	}
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, each := range rows {
		topic := each[0].(string)
		if offsets[topic] == nil {
			offsets[topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[topic][int32(each[1].(float64))] = kgo.EpochOffset{Epoch: -1, Offset: int64(each[2].(float64))}
	}
	noted := kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for t := range request.Topics {
			for p := range request.Topics[t].Partitions {
				request.Topics[t].Partitions[p].Metadata = kmsg.StringPtr(rows[0][3].(string))
			}
		}
		return nil
	})
	var failure error
	client.CommitOffsetsSync(noted, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		failure = err
		if err != nil {
			return
		}
		for _, topic := range answer.Topics {
			for _, partition := range topic.Partitions {
				if failure == nil {
					failure = kerr.ErrorForCode(partition.ErrorCode)
				}
			}
		}
	})
	return failure
}
