package cluster

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"kagami/cluster/journal"
	"kagami/persistence"
)

// TestBlankReplica: when nobody has anything of a partition, a replica begins at
// nothing only if no operation can have been missed, or if its own log was the only
// one.
func TestBlankReplica(t *testing.T) {
	for name, row := range map[string]struct {
		covered           int64
		sole, bytes, want bool
	}{
		"no hole since the topic was created":        {covered: 0, want: true},
		"a hole before it":                           {covered: testKey.CreatedAt, want: true},
		"a hole since":                               {covered: testKey.CreatedAt + 1, want: false},
		"a hole of which it isn't known yet":         {covered: math.MaxInt64, want: false},
		"a hole since, but there is no other copy":   {covered: math.MaxInt64, sole: true, want: true},
		"bytes of which nothing can be of this life": {covered: 0, bytes: true, want: true},
		"the only bytes":                             {covered: math.MaxInt64, sole: true, bytes: true, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			cps, err := OpenCheckpoints(persistence.OSFS{}, t.TempDir(), zap.NewNop())
			require.NoError(t, err)
			t.Cleanup(func() { _ = cps.Close() })
			s := &streamed{
				shard: &shard{dirty: map[*streamed]struct{}{}}, applied: func() {}, behind: true,
				d: direct{key: testKey, log: &fakeLog{}, checkpoints: cps, state: journal.NewState(), replicated: true},
			}
			s.shard.covered.Store(row.covered)
			if row.bytes {
				_, err = s.d.log.Append(records(0, 3, 0), persistence.AppendOptions{})
				require.NoError(t, err)
			}
			require.Equal(t, row.want, s.beginBlank(row.sole))
			require.Equal(t, !row.want, s.isBehind())
			require.Equal(t, row.bytes && !row.want, s.d.log.End() > 0)
		})
	}
}
