package broker

// AlterUserScramCredentials: served version 0 (KIP-554). Alter on the cluster. The client
// sends the salted password; what is kept are the two keys that are made of it.

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"hash"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

func (s *Server) handleAlterUserScramCredentials(ctx context.Context, r *request) reply {
	req := r.body.(*kmsg.AlterUserSCRAMCredentialsRequest)
	resp := kmsg.NewPtrAlterUserSCRAMCredentialsResponse()
	resp.Version = req.Version
	var cmd messages.AlterScram
	for _, d := range req.Deletions {
		cmd.Changes = append(cmd.Changes, messages.ScramChange{User: d.Name, Mechanism: messages.ScramMechanism(d.Mechanism), Delete: true})
	}
	for _, u := range req.Upsertions {
		c := messages.ScramChange{User: u.Name, Mechanism: messages.ScramMechanism(u.Mechanism)}
		c.Set = scramCredential(c.Mechanism, u.SaltedPassword, u.Salt, u.Iterations)
		cmd.Changes = append(cmd.Changes, c)
	}
	items := make([]messages.Item, len(cmd.Changes))
	sent := make([]int, len(cmd.Changes))
	for i := range sent {
		sent[i] = i
	}
	switch {
	case !s.allowedCluster(r, OpAlter):
		fillItems(items, messages.ErrClusterNotAuthorized)
	case len(sent) > 0:
		spread(items, sent, s.submit(ctx, r, 0, cmd))
	}
	// One answer a user: the first of its faults.
	at := make(map[string]int)
	for i, c := range cmd.Changes {
		n, seen := at[c.User]
		if !seen {
			n = len(resp.Results)
			at[c.User] = n
			rr := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
			rr.User = c.User
			resp.Results = append(resp.Results, rr)
		}
		if rr := &resp.Results[n]; rr.ErrorCode == 0 {
			rr.ErrorCode, rr.ErrorMessage = r.code(items[i].Err), errorText(items[i].Err)
		}
	}
	return answer(resp)
}

// scramCredential makes the keys of a salted password (RFC 5802, 3). Without the mechanism
// there are none, and the controller refuses it.
func scramCredential(m messages.ScramMechanism, salted, salt []byte, iterations int32) messages.ScramCredential {
	out := messages.ScramCredential{Salt: salt, Iterations: iterations}
	var h func() hash.Hash
	switch m {
	case messages.ScramSHA256:
		h = sha256.New
	case messages.ScramSHA512:
		h = sha512.New
	default:
		return out
	}
	if len(salted) != m.KeySize() {
		return out
	}
	mac := func(text string) []byte {
		w := hmac.New(h, salted)
		_, _ = fmt.Fprint(w, text)
		return w.Sum(nil)
	}
	stored := h()
	_, _ = stored.Write(mac("Client Key"))
	out.StoredKey, out.ServerKey = stored.Sum(nil), mac("Server Key")
	return out
}
