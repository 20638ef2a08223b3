package e2e

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHistoryJudge: the checker finds every kind of fault in a small history, and
// none in a good one.
func TestHistoryJudge(t *testing.T) {
	good := map[place]string{
		{0, 0}: "idempotent-0-0-0", {0, 1}: "plain-2-0-0", {0, 2}: "plain-2-0-1", {0, 3}: "plain-2-0-0",
		{0, 4}: "idempotent-0-0-1", {0, 5}: "pinned-1-0-7", {1, 0}: "idempotent-0-1-0", {0, 6}: "of another",
	}
	acked := map[string]place{"idempotent-0-0-0": {0, 0}, "plain-2-0-0": {0, 3}, "idempotent-0-0-1": {0, 4}, "pinned-1-0-7": {0, 5}}
	read := map[place]string{{0, 0}: "idempotent-0-0-0", {0, 3}: "plain-2-0-0"}
	rows := []struct {
		name   string
		change func(log map[place]string)
		want   string // part of the only fault; "" for none
	}{
		{"good", func(map[place]string) {}, ""},
		{"lost", func(log map[place]string) { delete(log, place{0, 5}) }, `pinned-1-0-7 was acknowledged at {0 5}, there is ""`},
		{"elsewhere", func(log map[place]string) { log[place{0, 5}], log[place{0, 6}] = log[place{0, 6}], log[place{0, 5}] }, "pinned-1-0-7 was acknowledged"},
		{"twice", func(log map[place]string) { log[place{0, 7}] = "idempotent-0-0-1" }, "is in the log 2 times"},
		{"twice, unacknowledged", func(log map[place]string) { log[place{1, 1}] = "idempotent-0-1-0" }, "is in the log 2 times"},
		{"out of order", func(log map[place]string) {
			log[place{0, 7}], log[place{0, 8}] = "idempotent-1-0-6", "idempotent-1-0-5"
		}, "number 5 at 8, number 6 at 7"},
		{"plain out of order", func(log map[place]string) { log[place{0, 1}] = "x" }, "number 0 at 3, number 1 at 2"},
		{"read and gone", func(log map[place]string) { log[place{0, 3}] = "y"; log[place{0, 1}] = "x"; delete(log, place{0, 2}) }, `was read at {0 3}, there is "y"`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			log := maps.Clone(good)
			row.change(log)
			faults := checkHistory(acked, read, log)
			if row.want == "" {
				require.Empty(t, faults)
				return
			}
			require.Contains(t, strings.Join(faults, "\n"), row.want)
		})
	}
}
