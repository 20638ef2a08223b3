package actors

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"kagami/cluster"
	"kagami/messages"
)

// TestOP25RecoverOnOtherNodes: RecoverMirrorTopics goes to the nodes that lead.
func TestOP25RecoverOnOtherNodes(t *testing.T) {
	src := stubSource(t, 1, 1)
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t")
	asked := recoverRequest{Who: messages.Requester{Principal: "User:op"}, Mirror: "m", Topics: []string{"t", "nope"}}

	_, err := n.recoverOn(t.Context(), 2, asked)
	require.ErrorIs(t, err, cluster.ErrNoResponders)
	var got recoverRequest
	reply := `{"Recovered":[3,0]}`
	stop, err := n.config.Bus.Serve(n.config.Bus.NodeRecover(2), func(_ context.Context, payload []byte) []byte {
		if err := json.Unmarshal(payload, &got); err != nil {
			t.Error(err)
		}
		return []byte(reply)
	})
	require.NoError(t, err)
	defer stop()
	counts, err := n.recoverOn(t.Context(), 2, asked)
	require.NoError(t, err)
	require.Equal(t, []int{3, 0}, counts)
	require.Empty(t, cmp.Diff(asked, got))
	reply = `{"Recovered":[3]}`
	_, err = n.recoverOn(t.Context(), 2, asked)
	require.ErrorIs(t, err, errRecoverAnswer)
	reply = `{"Error":"disk"}`
	_, err = n.recoverOn(t.Context(), 2, asked)
	require.ErrorContains(t, err, "disk")

	// The other side, over the bus: nothing is FAILED here.
	body, err := json.Marshal(asked)
	require.NoError(t, err)
	answer, err := n.config.Bus.Request(t.Context(), n.config.Bus.NodeRecover(1), body)
	require.NoError(t, err)
	require.JSONEq(t, `{"Recovered":[0,0],"Error":""}`, string(answer))
	answer, err = n.config.Bus.Request(t.Context(), n.config.Bus.NodeRecover(1), []byte("{"))
	require.NoError(t, err)
	require.Contains(t, string(answer), "JSON")
	items := n.Recover(t.Context(), asked.Who, "m", []string{"t"})
	require.ErrorIs(t, items[0].Err, messages.ErrInvalidMirrorStates)
}
