package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"kagami/cluster/journal"
	"kagami/messages"
)

// slowOrder takes its time with claims: what is meanwhile is called before the verdict.
type slowOrder struct {
	orderer
	meanwhile func()
}

func (o *slowOrder) Propose(ctx context.Context, op journal.Operation) (Applied, error) {
	if op.Kind == journal.OpClaim && o.meanwhile != nil {
		o.meanwhile()
	}
	return o.orderer.Propose(ctx, op)
}

// TestResignDuringClaim: a claim that was on its way when a newer image named another
// leader doesn't make this node one, and whoever resigns doesn't wait for it. (It did,
// for as long as a claim may take, and nothing was opened or applied meanwhile.) A claim
// that comes after the resignation counts.
func TestResignDuringClaim(t *testing.T) {
	g := newRig(t)
	ctx := t.Context()
	require.NoError(t, g.r.Claim(ctx, 11))
	require.True(t, g.r.Leads())
	resigned := make(chan struct{})
	slow := &slowOrder{orderer: g.r.order, meanwhile: func() {
		go func() { g.r.resign(); close(resigned) }()
		select {
		case <-resigned:
		case <-time.After(20 * time.Second):
			t.Error("a resignation waits for a claim")
		}
	}}
	g.r.order = slow
	require.ErrorIs(t, g.r.Claim(ctx, 12), messages.ErrNotLeader)
	<-resigned
	require.False(t, g.r.Leads())
	_, err := g.r.AppendClient(ctx, records(0, 1, 0), anyEpoch)
	require.ErrorIs(t, err, messages.ErrNotLeader)
	slow.meanwhile = nil
	require.NoError(t, g.r.Claim(ctx, 13))
	require.True(t, g.r.Leads())
	_, err = g.r.AppendClient(ctx, records(0, 1, 0), anyEpoch)
	require.NoError(t, err)
}

// TestResignBeforeAClaimEnds: a claim that waits for its turn when the node resigns came
// before that.
func TestResignBeforeAClaimEnds(t *testing.T) {
	g := newRig(t)
	require.NoError(t, g.r.Claim(t.Context(), 11))
	before := g.r.resigned.Load()
	g.r.resign()
	require.False(t, g.r.takeOver(before))
	require.False(t, g.r.Leads())
	require.True(t, g.r.takeOver(g.r.resigned.Load()))
	require.True(t, g.r.Leads())
}
