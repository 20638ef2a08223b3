package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/test/e2e"
)

// Loss is one measured kill -9 of a node of three; all times count from it.
type Loss struct {
	Partitions int
	Victim     string // what it was besides a third of the leaders
	Led        int    // partitions that the victim led

	Noticed  time.Duration // a surviving node counts it as dead
	Assigned time.Duration // every survivor tells a living leader for every partition
	Claimed  time.Duration // every partition is served by its leader
	Fetching time.Duration // every partition has got what the source has got since
	Half     time.Duration // as Fetching, of half the partitions that the victim led
	CPU      time.Duration // of the two survivors
}

// Losses are all runs; Write prints medians.
type Losses []Loss

// Write prints the table in Markdown.
func (all Losses) Write(w io.Writer) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(w, "\n| partitions | led by the victim | victim | runs | noticed | leaders assigned | claimed | half fetch again | all fetch again | slowest run | CPU s |")
	fmt.Fprintln(w, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	groups := map[string]Losses{}
	for _, l := range all {
		k := fmt.Sprintf("%06d %s", l.Partitions, l.Victim)
		groups[k] = append(groups[k], l)
	}
	for _, k := range sortedKeys(groups) {
		g := groups[k]
		m := func(of func(Loss) time.Duration) string {
			values := make([]time.Duration, 0, len(g))
			for _, l := range g {
				values = append(values, of(l))
			}
			slices.Sort(values)
			return seconds(values[(len(values)-1)/2])
		}
		slowest := slices.MaxFunc(g, func(a, b Loss) int { return cmp.Compare(a.Fetching, b.Fetching) })
		fmt.Fprintf(w, "| %d | %d | %s | %d | %s | %s | %s | %s | %s | %s | %s |\n", g[0].Partitions, g[0].Led, g[0].Victim, len(g),
			m(func(l Loss) time.Duration { return l.Noticed }), m(func(l Loss) time.Duration { return l.Assigned }),
			m(func(l Loss) time.Duration { return l.Claimed }), m(func(l Loss) time.Duration { return l.Half }),
			m(func(l Loss) time.Duration { return l.Fetching }), seconds(slowest.Fetching), m(func(l Loss) time.Duration { return l.CPU }))
	}
	fmt.Fprintln(w)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// watch asks the survivors again and again how far they are.
type watch struct {
	begun   time.Time
	dead    int32
	topics  []string
	clients []*kgo.Client // of the survivors
	want    map[string]map[int32]int64

	mu   sync.Mutex
	loss *Loss
}

// watchPause lies between two looks: the times can't be finer, and asking must not
// be what takes the time.
const watchPause = 25 * time.Millisecond

// newWatch takes the source's ends as what every partition has to reach.
func newWatch(survivors []*e2e.Node, dead int, topics []string, want map[string]map[int32]int64, l *Loss) (*watch, error) {
	w := &watch{dead: int32(dead), topics: topics, want: want, loss: l}
	for _, n := range survivors {
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()))
		if err != nil {
			w.close()
			return nil, fmt.Errorf("make client: %w", err)
		}
		w.clients = append(w.clients, cl)
	}
	return w, nil
}

func (w *watch) close() {
	for _, cl := range w.clients {
		cl.Close()
	}
}

// run returns when every partition fetches again.
func (w *watch) run(ctx context.Context, begun time.Time) error {
	w.begun = begun
	errs := make([]error, 2)
	var both sync.WaitGroup
	both.Go(func() { errs[0] = w.leaders(ctx) })
	both.Go(func() { errs[1] = w.ends(ctx) })
	both.Wait()
	return errors.Join(errs...)
}

func (w *watch) note(f func(l *Loss, since time.Duration)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.loss, time.Since(w.begun))
}

// leaders waits until no survivor names the dead node.
func (w *watch) leaders(ctx context.Context) error {
	for _, cl := range w.clients {
		for {
			left, err := w.ledByDead(ctx, cl)
			if err != nil {
				return err
			}
			if left == 0 {
				break
			}
			if err := pause(ctx, watchPause); err != nil {
				return err
			}
		}
	}
	w.note(func(l *Loss, since time.Duration) { l.Assigned = since })
	return nil
}

func (w *watch) ledByDead(ctx context.Context, cl *kgo.Client) (int, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range w.topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
	}
	resp, err := cl.SeedBrokers()[0].RetriableRequest(ctx, req)
	if err != nil {
		return 0, fmt.Errorf("ask for leaders: %w", err)
	}
	left := 0
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		for _, p := range t.Partitions {
			if p.Leader == w.dead || p.Leader < 0 {
				left++
			}
		}
	}
	return left, nil
}

// ends waits until every partition is served, and then has what is wanted.
func (w *watch) ends(ctx context.Context) error {
	type partition struct {
		topic string
		n     int32
	}
	unserved, behind := map[partition]bool{}, map[partition]bool{}
	for topic, ps := range w.want {
		for n := range ps {
			unserved[partition{topic, n}], behind[partition{topic, n}] = true, true
		}
	}
	for len(behind) > 0 {
		for _, cl := range w.clients {
			asked := map[string][]int32{}
			for p := range behind {
				asked[p.topic] = append(asked[p.topic], p.n)
			}
			err := endsOf(ctx, cl, asked, func(topic string, n int32, end int64) {
				p := partition{topic, n}
				delete(unserved, p)
				if end >= w.want[topic][n] {
					delete(behind, p)
				}
			})
			if err != nil {
				return err
			}
		}
		w.note(func(l *Loss, since time.Duration) {
			if len(unserved) == 0 && l.Claimed == 0 {
				l.Claimed = since
			}
			if len(behind) <= l.Led/2 && l.Half == 0 {
				l.Half = since
			}
			l.Fetching = since
		})
		if err := pause(ctx, watchPause); err != nil {
			return err
		}
	}
	return nil
}

// endsOf tells the log ends of the partitions that this node leads.
func endsOf(ctx context.Context, cl *kgo.Client, asked map[string][]int32, tell func(topic string, n int32, end int64)) error {
	if len(asked) == 0 {
		return nil
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for topic, ps := range asked {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, n := range ps {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp, p.CurrentLeaderEpoch = n, -1, -1
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := cl.SeedBrokers()[0].RetriableRequest(ctx, req)
	if err != nil {
		return fmt.Errorf("ask for log ends: %w", err)
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				tell(t.Topic, p.Partition, p.Offset)
			}
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// logged is when a node first logged a line that has all the words, after a moment;
// zero if it didn't.
func logged(log string, after time.Time, words ...string) time.Time {
	const layout = "2006-01-02T15:04:05.000Z0700"
	for line := range strings.Lines(log) {
		stamp, rest, _ := strings.Cut(line, "\t")
		at, err := time.Parse(layout, stamp)
		if err != nil || at.Before(after) {
			continue
		}
		has := true
		for _, word := range words {
			has = has && strings.Contains(rest, word)
		}
		if has {
			return at
		}
	}
	return time.Time{}
}

// wantedEnds are the log ends of the source.
func wantedEnds(ctx context.Context, source *e2e.Node, topics []kadm.TopicDetail) (map[string]map[int32]int64, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(source.Bootstrap()))
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	defer cl.Close()
	want, asked := map[string]map[int32]int64{}, map[string][]int32{}
	for _, t := range topics {
		want[t.Topic], asked[t.Topic] = map[int32]int64{}, t.Partitions.Numbers()
	}
	err = endsOf(ctx, cl, asked, func(topic string, n int32, end int64) { want[topic][n] = end })
	return want, err
}
