package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

func TestTrim(t *testing.T) {
	live := func(node messages.NodeID, at uint64) Progress {
		return Progress{Node: node, Checkpointed: at, Live: true}
	}
	dead := func(node messages.NodeID, at uint64) Progress { return Progress{Node: node, Checkpointed: at} }
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
		{"never backwards", 30, 10, []Progress{live(1, 30), live(2, 40)}, 30, nil},
		{"a hole holds nothing", 30, 10, []Progress{live(1, 20), live(2, 40)}, 40, nil},
		{"a copy holds what it goes on from", 30, 10, []Progress{{Node: 1, Checkpointed: 20, Hold: 35, Live: true}, live(2, 40)}, 35, nil},
		{"the dead hold up to the limit", 1, 100, []Progress{live(1, 50), dead(2, 20)}, 20, nil},
		{"beyond the limit they are given up", 1, 101, []Progress{live(1, 50), dead(2, 20)}, 50, []messages.NodeID{2}},
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
		{"stream ends below", record, 1, 39, nil, StartRewound},
		{"stream made anew", record, 1, 0, nil, StartRewound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, tc.record.Compare(tc.first, tc.last, tc.payload), tc.want)
		})
	}
	for s := StartFollow; s <= StartRewound; s++ {
		require.NotEqual(t, "Start(?)", s.String())
	}
}

func TestHold(t *testing.T) {
	after := State{LogStart: 100, LogEnd: 200}
	for _, tc := range []struct {
		name string
		held int64
		op   Operation
		own  bool
		want int64
	}{
		{"append to a complete log", 190, Operation{Kind: OpAppend, Base: 190, End: 200}, false, 200},
		{"append to a part", 150, Operation{Kind: OpAppend, Base: 190, End: 200}, false, 150},
		{"truncate above what is held", 150, Operation{Kind: OpTruncate, Offset: 200}, false, 150},
		{"truncate below it", 250, Operation{Kind: OpTruncate, Offset: 200}, false, 200},
		{"restart", 150, Operation{Kind: OpRestartAt, Offset: 7}, false, 7},
		{"raise within", 150, Operation{Kind: OpRaiseLogStart, Offset: 100}, false, 150},
		{"raise above", 50, Operation{Kind: OpRaiseLogStart, Offset: 100}, false, 100},
		{"own baseline", 200, Operation{Kind: OpBaseline, Offset: 100, End: 200}, true, 200},
		{"another's baseline", 0, Operation{Kind: OpBaseline, Offset: 100, End: 200}, false, 100},
		{"claim", 150, Operation{Kind: OpClaim}, false, 150},
		{"mode", 150, Operation{Kind: OpMode}, false, 150},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, Hold(tc.held, after, tc.op, tc.own))
		})
	}
}

func TestTakeChunk(t *testing.T) {
	s := State{Generation: 9, LogStart: 100, LogEnd: 200}
	for _, tc := range []struct {
		name string
		held int64
		c    Chunk
		end  int64
		ok   bool
	}{
		{"follows", 120, Chunk{Generation: 9, From: 120, End: 150}, 150, true},
		{"source ahead", 120, Chunk{Generation: 9, From: 120, End: 250}, 200, true},
		{"of another generation", 120, Chunk{Generation: 8, From: 120, End: 150}, 120, false},
		{"doesn't follow", 120, Chunk{Generation: 9, From: 130, End: 150}, 120, false},
		{"complete", 200, Chunk{Generation: 9, From: 200, End: 250}, 200, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			end, ok := TakeChunk(s, tc.held, tc.c)
			require.Equal(t, tc.ok, ok)
			require.Equal(t, tc.end, end)
		})
	}
}

func TestRecover(t *testing.T) {
	cp := State{LogStart: 100, LogEnd: 200}
	for _, tc := range []struct {
		name             string
		held, start, end int64
		cutTo            int64
		lost             bool
	}{
		{"cut back", 200, 100, 250, 200, false},
		{"as it was", 200, 100, 200, 200, false},
		{"a part", 150, 100, 170, 150, false},
		{"too short", 200, 100, 199, 100, true},
		{"begins above", 150, 160, 300, 100, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cutTo, lost := Recover(cp, tc.held, tc.start, tc.end)
			require.Equal(t, tc.cutTo, cutTo)
			require.Equal(t, tc.lost, lost)
		})
	}
	require.True(t, Newer(State{Sequence: 5}, State{Sequence: 5}))
	require.False(t, Newer(State{Sequence: 4}, State{Sequence: 5}))
	require.False(t, Applies(State{Sequence: 5}, 5))
	require.True(t, Applies(State{Sequence: 5}, 6))
	require.True(t, RemovesBytes(Operation{Kind: OpRaiseLogStart}))
	require.False(t, RemovesBytes(Operation{Kind: OpAppend}))
}
