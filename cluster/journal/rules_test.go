package journal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

// TestRules: one row per decision, from a partition that is claimed (epoch 5,
// node 1, generation 10), holds offsets 100 to 199 and is at sequence 20.
func TestRules(t *testing.T) {
	base := State{
		Sequence: 20, Generation: 10, Mode: messages.ModeWritable, Epoch: 5, Node: 1,
		LogStart: 100, LogEnd: 200, ModeOffset: 150,
	}
	in := func(m messages.Mode) State { s := base; s.Mode = m; return s }
	appendOp := func(c messages.Class, gen, from, to int64) Operation {
		return Operation{Kind: OpAppend, Class: c, Generation: gen, Base: from, End: to}
	}
	newborn := NewState()
	for _, tc := range []struct {
		name   string
		state  State
		op     Operation
		want   Refusal
		change func(*State) // to the state besides the sequence
	}{
		{"claim, first ever", newborn, Operation{Kind: OpClaim, Epoch: 0, Node: 1}, Accepted,
			func(s *State) { s.Generation, s.Epoch, s.Node = 21, 0, 1 }},
		{"claim, higher epoch, same node", base, Operation{Kind: OpClaim, Epoch: 6, Node: 1}, Accepted,
			func(s *State) { s.Generation, s.Epoch = 21, 6 }},
		{"claim, higher epoch, other node", base, Operation{Kind: OpClaim, Epoch: 9, Node: 2}, Accepted,
			func(s *State) { s.Generation, s.Epoch, s.Node = 21, 9, 2 }},
		{"claim, equal epoch, same node", base, Operation{Kind: OpClaim, Epoch: 5, Node: 1}, Accepted,
			func(s *State) { s.Generation = 21 }},
		{"claim ignores the generation", base, Operation{Kind: OpClaim, Epoch: 6, Node: 1, Generation: 3}, Accepted,
			func(s *State) { s.Generation, s.Epoch = 21, 6 }},
		{"claim, equal epoch, other node", base, Operation{Kind: OpClaim, Epoch: 5, Node: 2}, RefusedEpoch, nil},
		{"claim, lower epoch", base, Operation{Kind: OpClaim, Epoch: 4, Node: 1}, RefusedEpoch, nil},
		{"claim without epoch", base, Operation{Kind: OpClaim, Epoch: -1, Node: 1}, RefusedMalformed, nil},
		{"claim of no node", base, Operation{Kind: OpClaim, Epoch: 6, Node: -1}, RefusedMalformed, nil},

		{"client append", base, appendOp(messages.ClassClient, 10, 200, 203), Accepted, func(s *State) { s.LogEnd = 203 }},
		{"internal append", base, appendOp(messages.ClassInternal, 10, 200, 201), Accepted, func(s *State) { s.LogEnd = 201 }},
		{"mirror append to a writable partition", base, appendOp(messages.ClassMirror, 10, 200, 201), RefusedMode, nil},
		{"client append to a sealed partition", in(messages.ModeSealed), appendOp(messages.ClassClient, 10, 200, 201), RefusedMode, nil},
		{"mirror append to a sealed partition", in(messages.ModeSealed), appendOp(messages.ClassMirror, 10, 200, 201), RefusedMode, nil},
		{"internal append to a sealed partition", in(messages.ModeSealed), appendOp(messages.ClassInternal, 10, 200, 201), Accepted,
			func(s *State) { s.LogEnd = 201 }},
		{"client append while mirroring", in(messages.ModeMirroring), appendOp(messages.ClassClient, 10, 200, 201), RefusedMode, nil},
		{"internal append while mirroring", in(messages.ModeMirroring), appendOp(messages.ClassInternal, 10, 200, 201), RefusedMode, nil},
		{"mirror append while mirroring", in(messages.ModeMirroring), appendOp(messages.ClassMirror, 10, 200, 900), Accepted,
			func(s *State) { s.LogEnd = 900 }},
		{"append below the log end", base, appendOp(messages.ClassClient, 10, 199, 203), RefusedBase, nil},
		{"append above the log end", base, appendOp(messages.ClassClient, 10, 201, 203), RefusedBase, nil},
		{"append of an older generation", base, appendOp(messages.ClassClient, 9, 200, 203), RefusedGeneration, nil},
		{"append of a generation to come", base, appendOp(messages.ClassClient, 11, 200, 203), RefusedGeneration, nil},
		{"append of nothing", base, appendOp(messages.ClassClient, 10, 200, 200), RefusedMalformed, nil},
		{"append of no class", base, appendOp(0, 10, 200, 203), RefusedMalformed, nil},

		{"truncate", in(messages.ModeSealed), Operation{Kind: OpTruncate, Generation: 10, Base: 200, Offset: 160}, Accepted,
			func(s *State) { s.Generation, s.LogEnd, s.CutAt = 21, 160, 21 }},
		{"truncate a log that was longer", in(messages.ModeSealed), Operation{Kind: OpTruncate, Generation: 10, Base: 210, Offset: 160}, RefusedBase, nil},
		{"truncate a log that has grown since", in(messages.ModeSealed), Operation{Kind: OpTruncate, Generation: 10, Base: 190, Offset: 160}, RefusedBase, nil},
		{"truncate below the seal", in(messages.ModeSealed), Operation{Kind: OpTruncate, Generation: 10, Base: 200, Offset: 120}, Accepted,
			func(s *State) { s.Generation, s.LogEnd, s.ModeOffset, s.CutAt = 21, 120, 120, 21 }},
		{"truncate at the end", in(messages.ModeSealed), Operation{Kind: OpTruncate, Generation: 10, Base: 200, Offset: 200}, Accepted,
			func(s *State) { s.Generation = 21 }},
		{"truncate above the end", in(messages.ModeSealed), Operation{Kind: OpTruncate, Generation: 10, Base: 200, Offset: 300}, Accepted,
			func(s *State) { s.Generation = 21 }},
		{"truncate below the start", in(messages.ModeSealed), Operation{Kind: OpTruncate, Generation: 10, Base: 200, Offset: 50}, Accepted,
			func(s *State) { s.Generation, s.LogStart, s.LogEnd, s.ModeOffset, s.CutAt = 21, 50, 50, 50, 21 }},
		{"truncate, stale", in(messages.ModeSealed), Operation{Kind: OpTruncate, Generation: 8, Base: 200, Offset: 160}, RefusedGeneration, nil},
		{"truncate to a negative offset", in(messages.ModeSealed), Operation{Kind: OpTruncate, Generation: 10, Base: 200, Offset: -1}, RefusedMalformed, nil},

		{"restart", in(messages.ModeMirroring), Operation{Kind: OpRestartAt, Generation: 10, Base: 200, Offset: 5000}, Accepted,
			func(s *State) { s.Generation, s.LogStart, s.LogEnd, s.ModeOffset, s.CutAt = 21, 5000, 5000, 5000, 21 }},
		{"restart a log that has grown since", in(messages.ModeMirroring), Operation{Kind: OpRestartAt, Generation: 10, Base: 190, Offset: 5000}, RefusedBase, nil},
		{"restart, stale", in(messages.ModeMirroring), Operation{Kind: OpRestartAt, Generation: 0, Base: 200, Offset: 5000}, RefusedGeneration, nil},
		{"restart at a negative offset", in(messages.ModeMirroring), Operation{Kind: OpRestartAt, Generation: 10, Base: 200, Offset: -5}, RefusedMalformed, nil},

		{"raise log start", base, Operation{Kind: OpRaiseLogStart, Generation: 10, Offset: 150}, Accepted, func(s *State) { s.LogStart = 150 }},
		{"raise log start, never down", base, Operation{Kind: OpRaiseLogStart, Generation: 10, Offset: 50}, Accepted, func(*State) {}},
		{"raise log start, at most to the end", base, Operation{Kind: OpRaiseLogStart, Generation: 10, Offset: 500}, Accepted, func(s *State) { s.LogStart = 200 }},
		{"raise log start, stale", base, Operation{Kind: OpRaiseLogStart, Generation: 9, Offset: 150}, RefusedGeneration, nil},
		{"raise log start, negative", base, Operation{Kind: OpRaiseLogStart, Generation: 10, Offset: -1}, RefusedMalformed, nil},

		{"seal", base, Operation{Kind: OpMode, Generation: 10, Mode: messages.ModeSealed}, Accepted,
			func(s *State) { s.Generation, s.Mode, s.ModeOffset = 21, messages.ModeSealed, 200 }},
		{"seal again keeps the offset of the seal", in(messages.ModeSealed), Operation{Kind: OpMode, Generation: 10, Mode: messages.ModeSealed}, Accepted,
			func(s *State) { s.Generation = 21 }},
		{"mirroring", in(messages.ModeSealed), Operation{Kind: OpMode, Generation: 10, Mode: messages.ModeMirroring}, Accepted,
			func(s *State) { s.Generation, s.Mode, s.ModeOffset = 21, messages.ModeMirroring, 200 }},
		{"mode, stale", base, Operation{Kind: OpMode, Generation: 7, Mode: messages.ModeSealed}, RefusedGeneration, nil},
		{"no such mode", base, Operation{Kind: OpMode, Generation: 10, Mode: 4}, RefusedMalformed, nil},

		{"baseline of a newborn", newborn, Operation{Kind: OpBaseline, Epoch: 3, Node: 2, Mode: messages.ModeMirroring, Offset: 7, End: 9}, Accepted,
			func(s *State) {
				*s = State{Sequence: 21, Generation: 21, Mode: messages.ModeMirroring, Epoch: 3, Node: 2, LogStart: 7, LogEnd: 9, ModeOffset: 9, CutAt: 21}
			}},
		{"second baseline", base, Operation{Kind: OpBaseline, Epoch: 3, Node: 2, Mode: messages.ModeMirroring, Offset: 7, End: 9}, RefusedGeneration, nil},
		{"baseline that ends before it starts", newborn, Operation{Kind: OpBaseline, Mode: messages.ModeSealed, Offset: 9, End: 7}, RefusedMalformed, nil},
		{"no such operation", base, Operation{Kind: 99, Generation: 10}, RefusedMalformed, nil},
		{"no operation", base, Operation{Generation: 10}, RefusedMalformed, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, verdict := Decide(tc.state, 21, tc.op)
			require.Equal(t, tc.want, verdict)
			want := tc.state
			want.Sequence = 21
			if tc.change != nil {
				tc.change(&want)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("state (-want +got):\n%s", d)
			}
			if err := RefusalError(verdict, tc.state, tc.op); (err == nil) != (verdict == Accepted) {
				t.Fatalf("%s gives error %v", verdict, err)
			}
		})
	}
}

func TestRefusalsWrapSentinels(t *testing.T) {
	for r, want := range map[Refusal]error{
		RefusedGeneration: messages.ErrNotLeader,
		RefusedEpoch:      messages.ErrFencedLeaderEpoch,
		RefusedBase:       ErrNotLogEnd,
		RefusedMode:       messages.ErrReadOnlyTopic,
		RefusedMalformed:  messages.ErrInvalidRequest,
	} {
		require.ErrorIs(t, RefusalError(r, NewState(), Operation{Kind: OpAppend}), want, r.String())
	}
}
