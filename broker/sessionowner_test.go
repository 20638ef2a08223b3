package broker

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// TestSessionsBelongToOneUser: a fetch session can't be used, ended or looked into by
// another user, and its id can't be guessed.
func TestSessionsBelongToOneUser(t *testing.T) {
	w := newWorld(t, withSASL(0))
	w.topic("secret", 1, nil)
	alice, bob := w.dial(), w.dial()
	alice.login("alice")
	bob.login("bob")
	fetch := func(c *rawConn, session, epoch int32) *kmsg.FetchResponse {
		t.Helper()
		req := sessionRequest(12, session, epoch, "secret", messages.TopicID{}, map[int32]int64{0: 0})
		if epoch > 0 {
			req.Topics = nil
		}
		return c.call(req).(*kmsg.FetchResponse)
	}
	id := fetch(alice, 0, 0).SessionID
	other := fetch(alice, 0, 0).SessionID
	require.Positive(t, id)
	require.NotEqual(t, id+1, other, "ids in a row are told in advance")
	stolen := fetch(bob, id, 1)
	require.Equal(t, kerr.FetchSessionIDNotFound.Code, stolen.ErrorCode)
	require.Empty(t, stolen.Topics)
	require.Zero(t, fetch(bob, id, sessionEpochFinal).ErrorCode)
	require.Zero(t, fetch(bob, id, sessionEpochInitial).ErrorCode)
	require.Zero(t, fetch(alice, id, 1).ErrorCode, "it is still there, and nobody has moved it on")
}
