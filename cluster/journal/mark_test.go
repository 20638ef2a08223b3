package journal

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMark(t *testing.T) {
	m := Mark{Sequence: 90, Below: 12}
	back, err := Parse(func() []byte { b := m.Message(Author{Node: 2}); return b.AppendTo(nil) }())
	require.NoError(t, err)
	got, ok := MarkOf(back)
	require.True(t, ok)
	require.Equal(t, m, got)
	_, ok = MarkOf(Message{Author: Author{Node: 2}})
	require.False(t, ok, "a beat")
	_, ok = MarkOf(Message{Entries: []Entry{{Op: Operation{Kind: OpClaim}}}})
	require.False(t, ok)

	_, verdict := Decide(NewState(), 1, back.Entries[0].Op)
	require.Equal(t, RefusedMalformed, verdict, "by who takes it for an operation")
	require.NotPanics(t, func() { NewProposer(Author{Node: 2}, ProposerOptions{}).Applied(back) })

	for name, row := range map[string]struct {
		covered  int64
		sequence uint64
		want     int64
	}{
		"nothing is known":           {covered: math.MaxInt64, sequence: 90, want: 12},
		"less is known":              {covered: 30, sequence: 80, want: 12},
		"more is known":              {covered: 5, sequence: 90, want: 5},
		"the hole ends behind it":    {covered: 30, sequence: 91, want: 30},
		"no hole, since sequence 1":  {covered: 0, sequence: 0, want: 0},
		"the hole ends far behind":   {covered: math.MaxInt64, sequence: 500, want: math.MaxInt64},
		"a mark of a smaller hole":   {covered: 13, sequence: 89, want: 12},
		"of topics that are younger": {covered: 12, sequence: 90, want: 12},
	} {
		require.Equal(t, row.want, m.Cover(row.covered, row.sequence), name)
	}
}
