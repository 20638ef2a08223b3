package fsm

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/messages"
)

var update = flag.Bool("update", false, "rewrite golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s is not up to date (go test ./fsm -update): %s", path, d)
	}
}

func TestValidate(t *testing.T) {
	require.NoError(t, Validate())
}

func TestValidateFindsFaults(t *testing.T) {
	good := Row{Number: "x", From: states{sUnknown}, On: events{EventActive}, If: always, To: sTruncation, Persist: PersistState, Why: "w"}
	tests := map[string]struct {
		change func(*Row)
		want   string
	}{
		"no reason":        {func(r *Row) { r.Why = "" }, "doesn't say why"},
		"no guard":         {func(r *Row) { r.If = Guard{} }, "no guard"},
		"unknown state":    {func(r *Row) { r.To = 9 }, "unknown state"},
		"unknown event":    {func(r *Row) { r.On = events{99} }, "unknown event"},
		"unknown effect":   {func(r *Row) { r.Then = effects{99} }, "unknown effect"},
		"act too early":    {func(r *Row) { r.Before = effects{StartTruncation} }, "before the record"},
		"not stored":       {func(r *Row) { r.Persist = PersistNothing }, "stores nothing"},
		"paused to cut":    {func(r *Row) { r.From = states{sPaused} }, "PAUSED never"},
		"stopped to fetch": {func(r *Row) { r.From, r.To = states{sStopped}, sMirroring }, "STOPPED never"},
		"unknown to stop":  {func(r *Row) { r.To = sStopping }, "UNKNOWN never"},
		"row twice":        {func(r *Row) { r.From = states{sUnknown, sUnknown} }, "repeats row"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			row := good
			tt.change(&row)
			err := validate([]Row{row})
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// allFacts is every combination of facts that a guard can tell apart.
func allFacts() []Facts {
	var out []Facts
	for _, d := range []messages.Desired{messages.DesiredNone, messages.DesiredActive, messages.DesiredPaused, messages.DesiredStopped} {
		for _, p := range messages.States() {
			for bits := range 1 << 7 {
				f := Facts{Desired: d, Previous: p, Attempts: 3, Limit: 10}
				f.LogEmpty, f.Converged, f.EpochRaised = bits&1 != 0, bits&2 != 0, bits&4 != 0
				f.ResetAcked, f.StopFailed, f.AllStopped = bits&8 != 0, bits&16 != 0, bits&32 != 0
				if bits&64 != 0 {
					f.Attempts = 10
				}
				out = append(out, f)
			}
		}
	}
	return out
}

// TestD01EveryStateEveryEvent: for every pair under all facts there is at most
// one row, the machine agrees with it, and everything else is refused and moves
// nothing. Which rows a pair can take is the golden file.
func TestD01EveryStateEveryEvent(t *testing.T) {
	facts := allFacts()
	var got strings.Builder
	for _, from := range messages.States() {
		for _, on := range Events() {
			taken := map[string]messages.State{}
			for _, f := range facts {
				var matching []string
				for i := range rows {
					if rows[i].matches(from, on, f) {
						matching = append(matching, rows[i].Number)
					}
				}
				require.LessOrEqual(t, len(matching), 1, "%s %s %+v: rows %v", from, on, f, matching)
				if row := find(from, on, f); row != nil {
					taken[row.Number] = row.To
				}
			}
			fmt.Fprintf(&got, "%-14s | %-15s |", from, on)
			if len(taken) == 0 {
				got.WriteString(" refused\n")
				continue
			}
			for i := range rows {
				if to, ok := taken[rows[i].Number]; ok {
					fmt.Fprintf(&got, " %s -> %s (%s);", rows[i].Number, to, rows[i].Persist)
				}
			}
			got.WriteString("\n")
		}
	}
	golden(t, "pairs.txt", got.String())
}

func TestD01MachineAsksAndStays(t *testing.T) {
	for _, from := range messages.States() {
		for _, on := range Events() {
			for _, f := range allFacts()[:256] {
				m := NewMachine(from)
				tr, err := m.Ask(on, f)
				require.Equal(t, from, m.State(), "a question moves nothing")
				row := find(from, on, f)
				if row == nil {
					require.ErrorIs(t, err, ErrRefused)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, row.To, tr.To)
				m.Set(tr.To)
				require.Equal(t, row.To, m.State())
			}
		}
	}
}

// TestD01Rows are the pairs of states.md in its own words.
func TestD01Rows(t *testing.T) {
	active, paused, stopped := messages.DesiredActive, messages.DesiredPaused, messages.DesiredStopped
	tests := []struct {
		name  string
		from  messages.State
		on    Event
		facts Facts
		to    messages.State // StateUnknown: refused
		row   string
	}{
		{"1 active", sUnknown, EventActive, Facts{}, sTruncation, "1"},
		{"1 paused", sUnknown, EventPaused, Facts{}, sTruncation, "1"},
		{"2", sStopped, EventActive, Facts{}, sTruncation, "2"},
		{"3 waits", sTruncation, EventAligned, Facts{}, sUnknown, ""},
		{"3", sTruncation, EventAligned, Facts{Converged: true}, sMirroring, "3"},
		{"4", sTruncation, EventError, Facts{}, sFailed, "4"},
		{"5", sMirroring, EventEpochAhead, Facts{}, sFencing, "5"},
		{"6 not above", sFencing, EventEpochRaised, Facts{}, sUnknown, ""},
		{"6", sFencing, EventEpochRaised, Facts{EpochRaised: true}, sMirroring, "6"},
		{"7", sFencing, EventError, Facts{}, sFailed, "7"},
		{"8", sMirroring, EventPaused, Facts{}, sPausing, "8"},
		{"9", sPausing, EventFetcherGone, Facts{}, sPaused, "9"},
		{"10", sPaused, EventActive, Facts{}, sMirroring, "10"},
		{"11 from truncation", sTruncation, EventStopped, Facts{}, sStopping, "11"},
		{"11 from fencing", sFencing, EventStopped, Facts{}, sStopping, "11"},
		{"11 from mirroring", sMirroring, EventStopped, Facts{}, sStopping, "11"},
		{"11 from pausing", sPausing, EventStopped, Facts{}, sStopping, "11"},
		{"11 from paused", sPaused, EventStopped, Facts{}, sStopping, "11"},
		{"11 from failed", sFailed, EventStopped, Facts{Previous: sMirroring}, sStopping, "11 FAILED"},
		{"11 stop failed", sFailed, EventStopped, Facts{Previous: sStopping}, sUnknown, ""},
		{"11 stop failed, record keeps 0", sFailed, EventStopped, Facts{Previous: sTruncation, StopFailed: true}, sUnknown, ""},
		{"12 not acknowledged", sStopping, EventStopDone, Facts{}, sUnknown, ""},
		{"12", sStopping, EventStopDone, Facts{ResetAcked: true}, sStopped, "12"},
		{"13", sStopping, EventError, Facts{}, sFailed, "13"},
		{"14 mirroring", sMirroring, EventError, Facts{}, sFailed, "14"},
		{"14 not stopped", sStopped, EventError, Facts{}, sUnknown, ""},
		{"14 not unknown", sUnknown, EventError, Facts{}, sUnknown, ""},
		{"15 truncation", sFailed, EventRetry, Facts{Desired: active, Previous: sTruncation}, sTruncation, "15a"},
		{"15 truncation, paused", sFailed, EventRetry, Facts{Desired: paused, Previous: sTruncation}, sTruncation, "15a"},
		{"15 fencing (OP-7)", sFailed, EventRetry, Facts{Desired: active, Previous: sFencing}, sFencing, "15b"},
		{"15 mirroring", sFailed, EventRetry, Facts{Desired: active, Previous: sMirroring}, sMirroring, "15c"},
		{"15 paused", sFailed, EventRetry, Facts{Desired: active, Previous: sPaused}, sMirroring, "15c"},
		{"15 not recorded", sFailed, EventRetry, Facts{Desired: active, Previous: sUnknown}, sMirroring, "15c"},
		{"15 pausing", sFailed, EventRetry, Facts{Desired: active, Previous: sPausing}, sPausing, "15d"},
		{"15 stopping", sFailed, EventRetry, Facts{Desired: active, Previous: sStopping}, sStopping, "15e"},
		{"16", sFailed, EventRetry, Facts{Desired: stopped, Previous: sStopping}, sStopping, "16"},
		{"17", sFailed, EventRetry, Facts{Desired: paused, Previous: sMirroring}, sPausing, "17"},
		{"18", sFailed, EventRetry, Facts{Desired: active, Attempts: 10, Limit: 10}, sFailed, "18"},
		{"19", sMirroring, EventReenter, Facts{}, sMirroring, "19c"},
		{"20 waits", sStopped, EventMirrorDeleted, Facts{}, sUnknown, ""},
		{"21", sUnknown, EventStopped, Facts{LogEmpty: true}, sStopped, "21"},
		{"21 OP-44", sUnknown, EventStopped, Facts{}, sStopping, "21 OP-44"},
		{"22", sFailed, EventRecover, Facts{Attempts: 10, Limit: 10}, sFailed, "22"},
		{"23", sPaused, EventSourceChanged, Facts{}, sFailed, "23"},
		{"23 not stopping", sStopping, EventSourceChanged, Facts{}, sUnknown, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMachine(tt.from)
			tr, err := m.Ask(tt.on, tt.facts)
			if tt.row == "" {
				require.ErrorIs(t, err, ErrRefused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.to, tr.To)
			require.Equal(t, tt.row, tr.Row.Number)
		})
	}
}

func TestLooplabRefusesUnlisted(t *testing.T) {
	r := newRunner()
	_, err := r.ask(sPaused, &rows[1], EventActive)
	require.ErrorIs(t, err, ErrRefused)
	// The runner isn't jammed by it.
	to, err := r.ask(sStopped, &rows[1], EventActive)
	require.NoError(t, err)
	require.Equal(t, sTruncation, to)
	require.False(t, errors.Is(err, ErrRefused))
}

func TestDiagram(t *testing.T) {
	golden(t, "states.mmd", Mermaid())
	golden(t, "table.md", Markdown())
}

// TestDesiredVersusStored is every wish x state x reason; the golden file is the
// table of states.md with one column per reason.
func TestDesiredVersusStored(t *testing.T) {
	var got strings.Builder
	for _, d := range []messages.Desired{messages.DesiredStopped, messages.DesiredPaused, messages.DesiredActive, messages.DesiredNone} {
		for _, s := range messages.States() {
			for _, fromStop := range []bool{false, true} {
				if fromStop && s != sFailed {
					continue
				}
				name := s.String()
				if fromStop {
					name += " from stop"
				}
				fmt.Fprintf(&got, "%-8s | %-18s |", d, name)
				for _, why := range []Reason{ReasonLeader, ReasonDesired, ReasonRead, ReasonDone} {
					what := "-"
					if e, ok := Evaluate(d, s, fromStop, why); ok {
						what = e.String()
						// Whatever the wish asks for has a row.
						f := Facts{Desired: d, Previous: sMirroring, StopFailed: fromStop}
						require.NotNil(t, find(s, e, f), "%s in %s", e, s)
					}
					fmt.Fprintf(&got, " %-15s |", what)
				}
				got.WriteString("\n")
			}
		}
	}
	golden(t, "desired.txt", got.String())
}

func BenchmarkAsk(b *testing.B) {
	m := NewMachine(sMirroring)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Ask(EventPaused, Facts{}); err != nil {
			b.Fatal(err)
		}
	}
}
