package e2e

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages/txns"
)

// TestTxnHistoryJudge: the checkers find every kind of fault in a small history, and none
// in a good one.
func TestTxnHistoryJudge(t *testing.T) {
	out, wide := func(o int64) txnPlace { return txnPlace{txnOut, 0, o} }, func(o int64) txnPlace { return txnPlace{txnWide, 0, o} }
	type world struct {
		attempts map[string]*txnAttempt
		log      map[txnPlace]string
		read     map[txnPlace]string
		stored   map[string][]txns.State
		fed      map[int32]int64
	}
	state := func(epoch int16, s txns.Status) txns.State {
		return txns.State{Producer: txns.Producer{ID: 1, Epoch: epoch}, Status: s}
	}
	good := func() world {
		log := map[txnPlace]string{out(0): "t|1|0/0", out(1): "t|1|0/1", out(3): "t|4|0/2", wide(0): "w|2|0", wide(5): "w|2|1", wide(8): "w|6|0"}
		return world{
			attempts: map[string]*txnAttempt{
				"t|1": {id: "t", number: 1, records: 2, outcome: txnCommitted}, "t|4": {id: "t", number: 4, records: 1, outcome: txnUnknown},
				"w|2": {id: "w", number: 2, records: 2, outcome: txnCommitted}, "w|3": {id: "w", number: 3, records: 5, outcome: txnAborted},
				"w|5": {id: "w", number: 5, records: 1, outcome: txnUnknown}, "w|6": {id: "w", number: 6, records: 1, outcome: txnCommitted},
			},
			log: log, read: maps.Clone(log), fed: map[int32]int64{0: 3},
			stored: map[string][]txns.State{
				"t": {state(0, txns.Empty), state(0, txns.Ongoing), state(1, txns.PrepareCommit), state(1, txns.CompleteCommit), state(2, txns.PrepareCommit), state(2, txns.CompleteCommit)},
				"w": {state(0, txns.PrepareCommit), state(1, txns.PrepareAbort), state(3, txns.PrepareCommit), state(3, txns.CompleteCommit)},
				"x": {state(0, txns.Empty)},
			},
		}
	}
	rows := []struct {
		name   string
		change func(w *world)
		want   string // part of a fault; "" for none
	}{
		{"good", func(*world) {}, ""},
		{"reader is behind", func(w *world) { delete(w.read, out(3)); delete(w.read, wide(8)) }, ""},
		{"lost", func(w *world) { delete(w.log, out(1)) }, "t|1: 1 of 2 records are there"},
		{"lost whole", func(w *world) { delete(w.log, wide(8)) }, "w|6: 0 of 1"},
		{"twice", func(w *world) { w.log[out(4)] = "t|1|0/0" }, "t|1|0/0 is there twice"},
		{"input twice", func(w *world) {
			w.log[out(4)] = "t|7|0/0"
			w.attempts["t|7"] = &txnAttempt{id: "t", number: 7, records: 1}
		}, "input 0/0 came out 2 times"},
		{"input lost", func(w *world) { w.fed[0] = 4 }, "input 0/3 came out 0 times"},
		{"more than the input", func(w *world) { w.fed[0] = 2 }, "of 2 inputs 3 different ones came out"},
		{"aborted is seen", func(w *world) { w.log[wide(9)] = "w|3|0" }, "w|3: 1 of 5"},
		{"unknown in part", func(w *world) { w.attempts["w|5"].records = 2; w.log[wide(7)] = "w|5|0" }, "w|5: 1 of 2"},
		{"not sent", func(w *world) { w.log[wide(9)] = "w|9|0" }, "w|9|0 wasn't sent"},
		{"out of order", func(w *world) { w.log[wide(0)], w.log[wide(8)] = w.log[wide(8)], w.log[wide(0)] }, "w in txn-wide-0: 2 after 6"},
		{"read and gone", func(w *world) { w.read[out(2)] = "t|0|0/9" }, `saw "t|0|0/9"`},
		{"overlooked", func(w *world) { delete(w.read, wide(5)) }, `didn't see "w|2|1"`},
		{"commit without records", func(w *world) {
			w.stored["x"] = append(w.stored["x"], state(1, txns.PrepareCommit), state(1, txns.CompleteCommit))
		}, "x: 1 commits are stored, 0 transactions"},
		{"records without commit", func(w *world) { w.stored["w"] = w.stored["w"][1:] }, "w: 1 commits are stored, 2 transactions"},
		{"not stored", func(w *world) { delete(w.stored, "t") }, "t isn't stored"},
		{"hangs", func(w *world) { w.stored["t"] = append(w.stored["t"], state(2, txns.Ongoing)) }, "t ends as Ongoing"},
		{"epoch falls", func(w *world) { w.stored["t"] = append(w.stored["t"], state(1, txns.CompleteAbort)) }, "t: epoch 1 after 2"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := good()
			row.change(&w)
			faults := strings.Join(append(append(judgeTxns(w.attempts, w.log, []map[txnPlace]string{w.read}), judgeOutputs(w.fed, w.log)...), judgeStored(w.attempts, w.log, w.stored, false)...), "\n")
			if row.want == "" {
				require.Empty(t, faults)
				return
			}
			require.Contains(t, faults, row.want)
		})
	}
}
