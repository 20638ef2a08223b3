package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// TestACLs: what the mirror copied of ACLs, what went, and by whom; nothing of others.
func TestACLs(t *testing.T) {
	entry := func(id byte, name string, mirrors ...string) metadata.StoredACL {
		return metadata.StoredACL{ID: messages.TopicID{15: id}, Mirrors: mirrors, ACL: messages.ACL{
			Type: messages.ACLTopic, Pattern: messages.ACLPrefixed, Name: name, Principal: "User:alice", Host: "*", Operation: messages.ACLRead, Permission: messages.ACLDeny,
		}}
	}
	f := newTestFolder(t)
	f.life()
	node, ops := messages.Requester{Principal: "User:node-1", ClientID: "mirror-m"}, messages.Requester{Principal: "User:ops"}
	f.change(node, metadata.ACLRecord(entry(1, "pay", "m")), metadata.ACLRecord(entry(2, "pick", "m")), metadata.ACLRecord(entry(3, "other", "another")))
	f.change(ops, metadata.ACLRecord(entry(4, "own")), metadata.ACLRecord(entry(1, "pay")))
	f.change(node, metadata.RemoveACLRecord(messages.TopicID{15: 2}))
	f.change(ops, metadata.RemoveACLRecord(messages.TopicID{15: 1}), metadata.RemoveACLRecord(messages.TopicID{15: 3}))
	many := make([]metadata.Record, 0, 25)
	for i := range 25 {
		many = append(many, metadata.ACLRecord(entry(byte(100+i), fmt.Sprintf("t%02d", i), "m")))
	}
	f.change(node, many...)
	out, _, err := audited(t, f.dir, Options{})
	require.NoError(t, err)
	var got []string
	for line := range strings.Lines(out) {
		if at := strings.Index(line, "acls "); at >= 0 {
			got = append(got, strings.Join(strings.Fields(line[at:]), " "))
		}
	}
	const pay, pick = "DENY User:alice READ TOPIC prefix pay from *", "DENY User:alice READ TOPIC prefix pick from *"
	require.Len(t, got, 4)
	require.Equal(t, []string{
		`acls copied detail="` + pay + "; " + pick + `" by=User:node-1 client=mirror-m`,
		`acls left detail="` + pay + `" by=User:ops`,
		`acls removed detail="` + pick + `" by=User:node-1 client=mirror-m`,
	}, got[:3])
	require.Contains(t, got[3], "prefix t19 from *; and 5 more")
}
