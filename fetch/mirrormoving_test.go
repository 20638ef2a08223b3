package fetch_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/wire"
	"kagami/test/kafka/stub"
)

// A source of several nodes moves a partition's leader: none of them lists it for a
// moment. That isn't "in no mirror", which would cut the copy to nothing.
func TestMirroredPartitionThatNobodyLists(t *testing.T) {
	const mirrored, others, plain, code = "m.stopped", "other.stopped", "", 0
	for name, row := range map[string]struct {
		value  string // mirror.name of the topic on the source
		code   int16  // of its DescribeConfigs
		listed []int32
		want   []int32 // LME by partition
		lme    error   // of partition 1
		loop   error
	}{
		"both are listed":                 {mirrored, code, []int32{0, 1}, []int32{5, 5}, nil, nil},
		"one moves":                       {mirrored, code, []int32{0}, []int32{5}, fetch.ErrMirrorMoving, fetch.ErrMirrorMoving},
		"all of the topic move":           {mirrored, code, nil, nil, fetch.ErrMirrorMoving, fetch.ErrMirrorMoving},
		"the topic was never mirrored":    {plain, code, nil, []int32{-1, -1}, nil, nil},
		"it is in another, hidden mirror": {others, code, nil, []int32{-1, -1}, nil, nil},
		"it is active in a hidden mirror": {"other", code, nil, []int32{-1, -1}, nil, fetch.ErrMirrorLoop},
		"an active one moves: who knows":  {"m", code, nil, nil, fetch.ErrMirrorMoving, fetch.ErrMirrorMoving},
		"its configs may not be read":     {mirrored, kerr.TopicAuthorizationFailed.Code, []int32{0}, []int32{5}, fetch.ErrMirrorMoving, nil},
		"it was deleted in between":       {mirrored, kerr.UnknownTopicOrPartition.Code, []int32{0}, []int32{5, -1}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := startStub(t, 2)
			c.Update(func(st *stub.State) {
				st.Versions = stub.VersionsWithMirrors()
				topic := st.NewTopic("t", topicID, 2)
				topic.Configs[messages.MirrorNameConfig] = row.value
				topic.Code = row.code
				st.NewTopic("u", messages.TopicID{2}, 1)
				listed := map[messages.TopicPartition]int32{tp("x", 0): 1}
				for _, n := range row.listed {
					listed[tp("t", n)] = 5
				}
				st.Mirrors[0] = []wire.DescribeClusterMirrorsResponseDescribedMirror{stub.Mirror("m", messages.StateStopped, listed)}
			})
			m, err := newSource(t, c.Address()).AllMirrors(t.Context())
			require.NoError(t, err)
			named, err := newSource(t, c.Address()).LastMirrorEpochs(t.Context(), "m")
			require.NoError(t, err)
			m = m.Merge("m", named)
			for n, want := range row.want {
				got, err := m.LME("m", tp("t", int32(n)))
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
			_, err = m.LME("m", tp("t", 1))
			require.ErrorIs(t, err, row.lme)
			require.ErrorIs(t, m.CheckLoop("t", "a", "b"), row.loop)
			require.NoError(t, m.CheckLoop("u", "a", "b"))
			if row.lme != nil {
				require.True(t, fetch.Retriable(err))
			}
		})
	}
}

// A partition that moved between the two look-ups is in one of them.
func TestMergeOfANamedMirror(t *testing.T) {
	of := func(lmes map[messages.TopicPartition]int32) fetch.Mirrors {
		sm := fetch.SourceMirror{Partitions: map[messages.TopicPartition]fetch.MirroredPartition{}}
		for tp, lme := range lmes {
			sm.Partitions[tp] = fetch.MirroredPartition{State: messages.StateStopped.String(), LME: lme}
		}
		return fetch.Mirrors{Supported: true, Mirrors: map[string]fetch.SourceMirror{"m": sm}}
	}
	all := of(map[messages.TopicPartition]int32{tp("t", 0): 3, tp("t", 1): 9})
	m := all.Merge("m", of(map[messages.TopicPartition]int32{tp("t", 0): 4, tp("t", 2): 2}))
	for n, want := range []int32{4, 9, 2} {
		requireLME(t, want, m, tp("t", int32(n)))
	}
	require.Empty(t, of(nil).Merge("m", fetch.Mirrors{}).Mirrors, "unknown when asked by name: gone")
}
