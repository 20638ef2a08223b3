package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages"
	"kagami/messages/groups"
	"kagami/messages/wire"
)

// GroupHistory is what members of groups were told while nodes died: a group of the
// classic protocol and one of the consumer protocol, whose members come and go, commit
// what they have read, and begin where somebody before them committed. Check compares it
// with __consumer_offsets, see judgeGroups.
type GroupHistory struct {
	bootstrap string
	cleaned   bool

	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	commits map[groupPart]int64 // highest that was acknowledged
	acked   int
	faults  []string
}

type groupPart struct {
	group     string
	partition int32
}

// Topic and groups of a GroupHistory.
const (
	groupIn      = "group-in"
	groupClassic = "group-classic"
	groupNext    = "group-next"
)

// groupMembers are those of each group; groupStay is how long one of them stays.
const (
	groupMembers = 3
	groupStay    = 4 * time.Second
)

// StartGroupHistory starts the clients; the topic exists. The caller calls Stop or Check.
// Cleaned: the logs of coordinators are compacted, and don't tell owners at each moment.
func StartGroupHistory(bootstrap string, partitions int32, cleaned bool) (*GroupHistory, error) {
	ctx, cancel := context.WithCancel(context.Background())
	h := &GroupHistory{bootstrap: bootstrap, cleaned: cleaned, cancel: cancel, commits: map[groupPart]int64{}}
	feeder, err := producer(bootstrap, append(slices.Clone(historyClient), kgo.RecordRetries(1<<20))...)
	if err != nil {
		cancel()
		return nil, err
	}
	h.running.Go(func() { h.feed(ctx, feeder, partitions) })
	for i := range groupMembers {
		for group, opts := range map[string][]kgo.Opt{
			groupClassic: {kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond)},
			groupNext:    {kgo.ServerSideBalancer(), kgo.Balancers(kgo.CooperativeStickyBalancer())},
		} {
			h.running.Go(func() {
				for n := i; ctx.Err() == nil; n++ {
					h.member(ctx, group, n, opts)
				}
			})
		}
	}
	return h, nil
}

func (h *GroupHistory) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

func (h *GroupHistory) feed(ctx context.Context, cl *kgo.Client, partitions int32) {
	defer cl.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		for p := range partitions {
			cl.Produce(context.WithoutCancel(ctx), &kgo.Record{Topic: groupIn, Partition: p, Value: []byte("x")}, func(r *kgo.Record, err error) {
				if err != nil {
					h.fault("the input of groups wasn't acknowledged: %v", err)
				}
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	flush, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 2*time.Minute, errors.New("the last input isn't acknowledged"))
	defer cancel()
	if err := cl.Flush(flush); err != nil {
		h.fault("%v: %v", err, context.Cause(flush))
	}
}

// member is one stay of a member.
func (h *GroupHistory) member(ctx context.Context, group string, n int, opts []kgo.Opt) {
	ctx, cancel := context.WithTimeout(ctx, groupStay+time.Duration(n%groupMembers)*time.Second)
	defer cancel()
	var mu sync.Mutex
	begins := map[int32]int64{} // since they were assigned: where it may begin at the earliest
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(h.bootstrap, ",")...), kgo.RequestTimeoutOverhead(2 * time.Second), kgo.RetryTimeout(5 * time.Second),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(time.Second), kgo.DialTimeout(2 * time.Second), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(groupIn), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			h.mu.Lock()
			defer h.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			for _, p := range got[groupIn] {
				begins[p] = h.commits[groupPart{group, p}]
			}
		}),
	}, opts...)...)
	if err != nil {
		h.fault("make a member of %s: %v", group, err)
		return
	}
	for ctx.Err() == nil {
		h.commitOnce(ctx, cl, group, &mu, begins)
		cl.AllowRebalance()
	}
	cl.CloseAllowingRebalance()
}

// commitOnce reads some and commits it.
func (h *GroupHistory) commitOnce(ctx context.Context, cl *kgo.Client, group string, mu *sync.Mutex, begins map[int32]int64) {
	fetches := cl.PollRecords(ctx, 50)
	if fetches.NumRecords() == 0 {
		return
	}
	next := map[int32]int64{}
	mu.Lock()
	fetches.EachRecord(func(r *kgo.Record) {
		if at, first := begins[r.Partition]; first {
			if r.Offset < at {
				h.fault("a member of %s begins %d at %d, committed was %d", group, r.Partition, r.Offset, at)
			}
			delete(begins, r.Partition)
		}
		next[r.Partition] = r.Offset + 1
	})
	mu.Unlock()
	one, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if cl.CommitRecords(one, fetches.Records()...) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for p, offset := range next {
		h.acked++
		at := groupPart{group, p}
		h.commits[at] = max(h.commits[at], offset)
	}
}

// Acked is how many commits were acknowledged.
func (h *GroupHistory) Acked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acked
}

// Stop ends all clients. It may be called twice.
func (h *GroupHistory) Stop() {
	h.cancel()
	h.running.Wait()
}

// Check ends the clients and returns every fault: those that members saw, and of
// judgeGroups.
func (h *GroupHistory) Check(ctx context.Context, side *Side) error {
	h.Stop()
	reader := &TxnHistory{bootstrap: h.bootstrap}
	j := newGroupJudge()
	err := reader.readAll(ctx, side, func(r *kgo.Record) {
		rec, err := wire.DecodeGroupRecord(r.Key, r.Value)
		if err != nil {
			h.fault("%s-%d at %d: %v", r.Topic, r.Partition, r.Offset, err)
			return
		}
		if rec.Group == groupClassic || rec.Group == groupNext && !(h.cleaned && rec.Kind == groups.KindCurrent) {
			j.record(rec)
		}
	}, messages.ConsumerOffsetsTopic)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	faults := slices.Concat(h.faults, j.faults, j.lost(h.commits))
	if len(faults) > 0 {
		return fmt.Errorf("%d faults:\n%s", len(faults), strings.Join(faults[:min(len(faults), 20)], "\n"))
	}
	if h.acked == 0 || j.generations == 0 || j.epochs == 0 {
		return fmt.Errorf("%d commits, %d generations and %d epochs show nothing", h.acked, j.generations, j.epochs)
	}
	return nil
}

// groupJudge folds records of __consumer_offsets of groups that read groupIn, in order:
//
//   - a committed offset never goes back
//   - generations and epochs never fall while a group lives
//   - a partition has one owner: in each generation, and at each moment between members of
//     the consumer protocol
//   - the last offset is not below one that was acknowledged
type groupJudge struct {
	faults              []string
	offsets             map[groupPart]int64
	classic, next       map[string]int32 // generation, epoch
	owners              map[string]map[string]*groups.Current
	generations, epochs int
}

func newGroupJudge() *groupJudge {
	return &groupJudge{offsets: map[groupPart]int64{}, classic: map[string]int32{}, next: map[string]int32{}, owners: map[string]map[string]*groups.Current{}}
}

func (j *groupJudge) fault(format string, args ...any) {
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

func (j *groupJudge) record(r groups.Record) {
	switch r.Kind {
	case groups.KindOffset:
		at := groupPart{r.Group, r.Partition}
		switch {
		case r.Gone:
			j.fault("%s: the offset of %d is gone", r.Group, r.Partition)
		case r.Offset.Offset < j.offsets[at]:
			j.fault("%s: the offset of %d goes back from %d to %d", r.Group, r.Partition, j.offsets[at], r.Offset.Offset)
		default:
			j.offsets[at] = r.Offset.Offset
		}
	case groups.KindGroup:
		if !r.Gone {
			j.generation(r.Group, r.State)
		}
	case groups.KindConsumer:
		switch {
		case r.Gone:
		case r.Consumer.Epoch < j.next[r.Group]:
			j.fault("%s: epoch %d after %d", r.Group, r.Consumer.Epoch, j.next[r.Group])
		default:
			j.epochs++
			j.next[r.Group] = r.Consumer.Epoch
		}
	case groups.KindCurrent:
		j.current(r)
	case groups.KindConsumerPartitions, groups.KindConsumerMember, groups.KindTargetEpoch, groups.KindTarget, groups.KindRegex:
	}
}

func (j *groupJudge) generation(group string, s *groups.State) {
	if s.Generation < j.classic[group] {
		j.fault("%s: generation %d after %d", group, s.Generation, j.classic[group])
	}
	j.classic[group] = s.Generation
	j.generations++
	owner := map[int32]string{}
	for _, m := range s.Members {
		assigned, ok := wire.DecodeAssignment(m.Assignment)
		if !ok {
			j.fault("%s: member %s has an assignment of %d bytes", group, m.Member, len(m.Assignment))
		}
		for _, t := range assigned {
			for _, p := range t.Partitions {
				if other := owner[p]; other != "" {
					j.fault("%s: in generation %d %d belongs to %s and %s", group, s.Generation, p, other, m.Member)
				}
				owner[p] = m.Member
			}
		}
	}
}

func (j *groupJudge) current(r groups.Record) {
	of := j.owners[r.Group]
	if of == nil {
		of = map[string]*groups.Current{}
		j.owners[r.Group] = of
	}
	if r.Gone {
		delete(of, r.Member)
		return
	}
	if before := of[r.Member]; before != nil && r.Current.Epoch < before.Epoch && r.Current.Epoch > 0 {
		j.fault("%s: member %s has epoch %d after %d", r.Group, r.Member, r.Current.Epoch, before.Epoch)
	}
	of[r.Member] = r.Current
	owner := map[int32]string{}
	for member, c := range of {
		for _, t := range slices.Concat(c.Assigned, c.Revoking) {
			for _, p := range t.Partitions {
				if other := owner[p]; other != "" {
					j.fault("%s: at epoch %d %d belongs to %s and %s", r.Group, j.next[r.Group], p, other, member)
				}
				owner[p] = member
			}
		}
	}
}

// lost finds offsets that are below what was acknowledged.
func (j *groupJudge) lost(commits map[groupPart]int64) []string {
	var faults []string
	for at, offset := range commits {
		if j.offsets[at] < offset {
			faults = append(faults, fmt.Sprintf("%s: %d was acknowledged for %d, the last offset is %d", at.group, offset, at.partition, j.offsets[at]))
		}
	}
	return faults
}
