package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

func TestTrim(t *testing.T) {
	live := func(node messages.NodeID, at uint64) Progress {
		return Progress{Node: node, Needs: at, Live: true}
	}
	dead := func(node messages.NodeID, at uint64) Progress { return Progress{Node: node, Needs: at} }
	for _, tc := range []struct {
		name    string
		first   uint64
		size    int64
		nodes   []Progress
		keep    uint64
		givenUp []messages.NodeID
	}{
		{"the message at the least record stays", 1, 10, []Progress{live(1, 50), live(2, 40), live(3, 60)}, 40, nil},
		{"who hasn't reported holds all", 1, 10, []Progress{live(1, 50), live(2, 0)}, 1, nil},
		{"who hasn't reported holds what is left", 30, 10, []Progress{live(1, 50), live(2, 0)}, 30, nil},
		{"never backwards", 30, 10, []Progress{live(1, 30), live(2, 40)}, 30, nil},
		{"a hole holds all with the only replica", 30, 10, []Progress{live(1, 50), {Node: 2, Needs: 20, Live: true, Sole: true}}, 30, nil},
		{"a hole holds nothing", 30, 10, []Progress{live(1, 20), live(2, 40)}, 40, nil},
		{"the dead hold up to the limit", 1, 100, []Progress{live(1, 50), dead(2, 20)}, 20, nil},
		{"beyond the limit they are given up", 1, 101, []Progress{live(1, 50), dead(2, 20)}, 50, []messages.NodeID{2}},
		{"not with the only replica", 1, 101, []Progress{live(1, 50), {Node: 2, Needs: 20, Sole: true}}, 20, nil},
		{"one at a time", 1, 101, []Progress{live(1, 50), dead(2, 20), dead(3, 10)}, 20, []messages.NodeID{3}},
		{"the dead in front are in nobody's way", 1, 101, []Progress{live(1, 50), dead(2, 60)}, 50, nil},
		{"the living are never given up", 1, 1000, []Progress{live(1, 50), live(2, 20)}, 20, nil},
		{"nothing is purged for nobody", 1, 1000, []Progress{dead(1, 50)}, 1, nil},
		{"no nodes", 7, 1000, nil, 7, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			keep, givenUp := Trim(tc.first, tc.size, 100, tc.nodes)
			require.Equal(t, tc.keep, keep)
			require.Equal(t, tc.givenUp, givenUp)
		})
	}
}

func TestCompare(t *testing.T) {
	message := func(number uint64) []byte {
		m := Message{Author: testAuthor(1), Number: number}
		return m.AppendTo(nil)
	}
	record := ShardRecord{Sequence: 40, Print: Fingerprint(message(1))}
	for _, tc := range []struct {
		name        string
		record      ShardRecord
		first, last uint64
		payload     []byte
		want        Start
	}{
		{"new node, new stream", ShardRecord{}, 1, 0, nil, StartFollow},
		{"new node, whole stream", ShardRecord{}, 1, 50, nil, StartFollow},
		{"new node, trimmed stream", ShardRecord{}, 2, 50, nil, StartCopy},
		{"same message", record, 1, 50, message(1), StartFollow},
		{"same message, first and last", record, 40, 40, message(1), StartFollow},
		{"another message", record, 1, 50, message(2), StartRewound},
		{"purged", record, 41, 50, nil, StartCopy},
		{"not found", record, 1, 50, nil, StartCopy},
		{"behind a hole", ShardRecord{Sequence: 40}, 41, 50, nil, StartFollow},
		{"behind a hole, in another one", ShardRecord{Sequence: 40}, 42, 50, nil, StartCopy},
		{"behind a hole, put back", ShardRecord{Sequence: 40}, 1, 39, nil, StartRewound},
		{"stream ends below", record, 1, 39, nil, StartRewound},
		{"stream made anew", record, 1, 0, nil, StartRewound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, tc.record.Compare(tc.first, tc.last, tc.payload), tc.want)
		})
	}
	require.Equal(t, uint64(40), record.Needs())
	require.Equal(t, uint64(41), AfterHole(40).Needs())
	require.Equal(t, uint64(1), ShardRecord{}.Needs())
	for s := StartFollow; s <= StartRewound; s++ {
		require.NotEqual(t, "Start(?)", s.String())
	}
}

func TestNewborn(t *testing.T) {
	key := messages.PartitionKey{CreatedAt: 50}
	require.True(t, Newborn(key, 50, false))
	require.False(t, Newborn(key, 51, false), "it may have had operations before")
	require.False(t, Newborn(key, 0, true), "it has had operations")
}

func TestExtends(t *testing.T) {
	theirs := State{Sequence: 90, CutAt: 40, LogStart: 100, LogEnd: 200}
	for _, tc := range []struct {
		name     string
		sequence int64
		end      int64
		want     bool
	}{
		{"a beginning", 60, 150, true},
		{"all of it", 40, 200, true},
		{"from before the cut", 39, 150, false},
		{"ends below their start", 60, 99, false},
		{"longer than theirs", 60, 201, false},
		{"nothing known", 0, 150, false},
		{"theirs is older", 91, 150, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, Extends(State{Sequence: tc.sequence}, tc.end, theirs))
		})
	}
}

func TestInstall(t *testing.T) {
	theirs := State{Sequence: 90, LogEnd: 200}
	s, ok := Install(theirs, 95, 95)
	require.True(t, ok)
	require.Equal(t, State{Sequence: 95, LogEnd: 200}, s)
	s, ok = Install(theirs, 80, 70)
	require.True(t, ok)
	require.Equal(t, theirs, s)
	_, ok = Install(theirs, 95, 96)
	require.False(t, ok, "operation 96 would be missed")
}

func TestCheckpointRules(t *testing.T) {
	require.True(t, Newer(State{Sequence: 5}, State{Sequence: 5}))
	require.False(t, Newer(State{Sequence: 4}, State{Sequence: 5}))
	for kind, want := range map[OpKind]bool{OpClaim: false, OpAppend: false, OpTruncate: true, OpRestartAt: true, OpRaiseLogStart: false, OpMode: false, OpBaseline: false} {
		require.Equal(t, want, RemovesBytes(Operation{Kind: kind}), kind.String())
	}
}
