package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kagami/messages"
	"kagami/messages/txns"
	"kagami/test/kafka"
)

// txnPatience bounds each wait of a check, on a busy machine.
const txnPatience = 90 * time.Second

// Check ends the clients and returns every fault: those of judgeTxns, and
//
//   - the group's offsets are those of the input whose output is there, each once
//   - no transaction is left open: the last stable offset reaches the end
//   - __transaction_state has the outcome of every transaction that is seen, once
func (h *TxnHistory) Check(ctx context.Context, side *Side) error {
	h.stopFeed()
	h.feeders.Wait()
	if err := h.drained(ctx, side); err != nil {
		h.Stop()
		return err
	}
	h.Stop()
	if err := h.settled(ctx, side); err != nil {
		return err
	}
	log := map[txnPlace]string{}
	err := h.readAll(ctx, side, func(r *kgo.Record) { log[txnPlace{r.Topic, r.Partition, r.Offset}] = string(r.Value) }, txnOut, txnWide)
	if err != nil {
		return err
	}
	stored := map[string][]txns.State{}
	err = h.readAll(ctx, side, func(r *kgo.Record) {
		rec, err := txns.Decode(r.Key, r.Value)
		if err != nil {
			h.fault("%s-%d at %d: %v", r.Topic, r.Partition, r.Offset, err)
		} else if rec.State != nil {
			stored[rec.ID] = append(stored[rec.ID], *rec.State)
		}
	}, messages.TransactionStateTopic)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	faults := slices.Concat(h.faults, judgeTxns(h.attempts, log, h.reads), judgeOutputs(h.fed, log), judgeStored(h.attempts, log, stored, h.opts.Cleaned))
	if len(faults) > 0 {
		return fmt.Errorf("%d faults:\n%s", len(faults), strings.Join(faults[:min(len(faults), 20)], "\n"))
	}
	return nil
}

// drained waits until the group has committed all of the input.
func (h *TxnHistory) drained(ctx context.Context, side *Side) error {
	ctx, cancel := context.WithTimeout(ctx, txnPatience)
	defer cancel()
	return kafka.Poll(ctx, func() error {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		ends, err := side.TopicEnds(one, txnIn)
		if err != nil {
			return err
		}
		offsets, err := side.Admin.FetchOffsets(one, txnGroup)
		if err != nil {
			return fmt.Errorf("fetch offsets: %w", err)
		}
		for p, e := range ends {
			if o, _ := offsets.Lookup(txnIn, p); o.At != e.End {
				return fmt.Errorf("%s-%d: committed is %d, the end %d; %s", txnIn, p, o.At, e.End, h.Counts())
			}
		}
		return nil
	})
}

// settled waits until no transaction is open, after the time-out of those that were
// abandoned.
func (h *TxnHistory) settled(ctx context.Context, side *Side) error {
	ctx, cancel := context.WithTimeout(ctx, txnPatience+h.opts.Timeout)
	defer cancel()
	return kafka.Poll(ctx, func() error {
		one, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		list, err := side.Admin.ListTransactions(one, nil, []string{txns.Ongoing.String(), txns.PrepareCommit.String(), txns.PrepareAbort.String()})
		if err != nil {
			return fmt.Errorf("list transactions: %w", err)
		}
		if ids := list.TransactionalIDs(); len(ids) > 0 {
			return fmt.Errorf("open or being ended: %v", ids)
		}
		stable, err := side.Admin.ListCommittedOffsets(one, txnOut, txnWide, txnIn, messages.ConsumerOffsetsTopic)
		if err != nil {
			return fmt.Errorf("list stable offsets: %w", err)
		}
		ends, err := side.Admin.ListEndOffsets(one, txnOut, txnWide, txnIn, messages.ConsumerOffsetsTopic)
		if err != nil {
			return fmt.Errorf("list offsets: %w", err)
		}
		var open error
		ends.Each(func(o kadm.ListedOffset) {
			s, _ := stable.Lookup(o.Topic, o.Partition)
			if err := errors.Join(s.Err, o.Err); err != nil || s.Offset != o.Offset {
				open = errors.Join(fmt.Errorf("%s-%d: stable up to %d of %d", o.Topic, o.Partition, s.Offset, o.Offset), err)
			}
		})
		return open
	})
}

// readAll reads topics whole, as a committed reader.
func (h *TxnHistory) readAll(ctx context.Context, side *Side, f func(r *kgo.Record), topics ...string) error {
	ctx, cancel := context.WithTimeout(ctx, txnPatience)
	defer cancel()
	left := map[string]int64{}
	for _, topic := range topics {
		ends, err := side.TopicEnds(ctx, topic)
		if err != nil {
			return err
		}
		for p, e := range ends {
			if e.End > e.Start {
				left[fmt.Sprintf("%s-%d", topic, p)] = e.End
			}
		}
	}
	// Markers at the end aren't records: kgo tells of them when it is asked to keep them.
	cl, err := kgo.NewClient(h.txnClient(append(h.committedReader(topics...), kgo.KeepControlRecords())...)...)
	if err != nil {
		return fmt.Errorf("make reader: %w", err)
	}
	defer cl.Close()
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("%w, left are %v", err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				f(r)
			}
		})
		// Aborted batches at the end aren't told at all: those are behind a marker.
		fetches.EachRecord(func(r *kgo.Record) {
			at := fmt.Sprintf("%s-%d", r.Topic, r.Partition)
			if end, ok := left[at]; ok && r.Offset+1 >= end {
				delete(left, at)
			}
		})
	}
	return nil
}

// judgeOutputs: each record of the input has its output, once.
func judgeOutputs(fed map[int32]int64, log map[txnPlace]string) []string {
	var faults []string
	out := map[string]int{}
	for at, value := range log {
		if at.topic == txnOut {
			out[value[strings.LastIndex(value, "|")+1:]]++
		}
	}
	total := 0
	for p, n := range fed {
		for o := range n {
			total++
			if times := out[fmt.Sprintf("%d/%d", p, o)]; times != 1 {
				faults = append(faults, fmt.Sprintf("input %d/%d came out %d times", p, o, times))
			}
		}
	}
	if total != len(out) {
		faults = append(faults, fmt.Sprintf("of %d inputs %d different ones came out", total, len(out)))
	}
	return faults
}

// judgeStored: the log of the coordinators has one commit for each transaction that is
// seen, and no other, unless the cleaner took some; and every id has ended what it began.
func judgeStored(attempts map[string]*txnAttempt, log map[txnPlace]string, stored map[string][]txns.State, cleaned bool) []string {
	var faults []string
	seen := map[string]map[string]bool{}
	for _, value := range log {
		name := value[:strings.LastIndex(value, "|")]
		if a := attempts[name]; a != nil {
			if seen[a.id] == nil {
				seen[a.id] = map[string]bool{}
			}
			seen[a.id][name] = true
		}
	}
	for id := range seen {
		if len(stored[id]) == 0 {
			faults = append(faults, id+" isn't stored")
		}
	}
	for id, states := range stored {
		commits := 0
		for i, s := range states {
			if s.Status == txns.PrepareCommit {
				commits++
			}
			if i > 0 && s.ID == states[i-1].ID && s.Epoch < states[i-1].Epoch {
				faults = append(faults, fmt.Sprintf("%s: epoch %d after %d", id, s.Epoch, states[i-1].Epoch))
			}
		}
		if commits != len(seen[id]) && !cleaned {
			faults = append(faults, fmt.Sprintf("%s: %d commits are stored, %d transactions are seen", id, commits, len(seen[id])))
		}
		if last := states[len(states)-1].Status; last == txns.Ongoing || last.Preparing() {
			faults = append(faults, fmt.Sprintf("%s ends as %s", id, last))
		}
	}
	return faults
}
