package actors

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/persistence/metadata"
)

func readRight(name string) messages.ACL {
	return messages.ACL{Type: messages.ACLTopic, Pattern: messages.ACLLiteral, Name: name, Principal: "User:a", Host: "*", Operation: messages.ACLRead, Permission: messages.ACLAllow}
}

func anyOf(kind messages.ACLResourceType) messages.ACLFilter {
	return messages.ACLFilter{Type: kind, Pattern: messages.ACLPatternAny, Operation: messages.ACLAny, Permission: messages.ACLPermissionAny}
}

func TestACLs(t *testing.T) {
	w := newWorld(t)
	bad := readRight("t")
	bad.Principal = "a"
	out := w.ok(messages.CreateACLs{Entries: []messages.ACL{readRight("t"), readRight("u"), readRight("t")}})
	require.Len(t, out.Items, 3)
	require.Len(t, w.img.ACLs(), 2)
	id := w.img.ACL(readRight("t")).ID
	before := w.img.Offset()
	w.ok(messages.CreateACLs{Entries: []messages.ACL{readRight("t")}})
	require.Equal(t, before, w.img.Offset(), "it is there already")
	require.Equal(t, id, w.img.ACL(readRight("t")).ID)
	require.ErrorIs(t, w.do(messages.CreateACLs{Entries: []messages.ACL{bad}}).Items[0].Err, messages.ErrInvalidRequest)

	// Whose an entry is (OP-31).
	w.ok(messages.CreateACLs{Entries: []messages.ACL{readRight("t"), readRight("m")}, Mirror: "m1"})
	w.ok(messages.CreateACLs{Entries: []messages.ACL{readRight("m")}, Mirror: "m2"})
	require.Empty(t, w.img.ACL(readRight("t")).Mirrors, "an operator's stays an operator's")
	require.Equal(t, []string{"m1", "m2"}, w.img.ACL(readRight("m")).Mirrors)
	w.ok(messages.CreateACLs{Entries: []messages.ACL{readRight("m")}})
	require.Empty(t, w.img.ACL(readRight("m")).Mirrors, "an operator takes it over")

	mirror := readRight("x")
	mirror.Type, mirror.Operation = messages.ACLClusterMirror, messages.ACLAlter
	w.ok(messages.CreateACLs{Entries: []messages.ACL{mirror}})
	out = w.do(messages.DeleteACLs{Filters: []messages.ACLFilter{anyOf(messages.ACLAnyResource), anyOf(messages.ACLTopic), {}}})
	require.Len(t, out.Items[0].ACLs, 4)
	require.Len(t, out.Items[1].ACLs, 3, "what two filters find is in both answers")
	require.ErrorIs(t, out.Items[2].Err, messages.ErrInvalidRequest)
	require.Empty(t, w.img.ACLs())
}

func TestScram(t *testing.T) {
	w := newWorld(t)
	set := func(user string, m messages.ScramMechanism, iterations int32) messages.ScramChange {
		return messages.ScramChange{User: user, Mechanism: m, Set: messages.ScramCredential{Salt: []byte{1}, StoredKey: make([]byte, m.KeySize()), ServerKey: make([]byte, m.KeySize()), Iterations: iterations}}
	}
	out := w.ok(messages.AlterScram{OnlyFirst: true, Changes: []messages.ScramChange{set("first", messages.ScramSHA256, 4096)}})
	require.NoError(t, out.Items[0].Err)
	w.ok(messages.AlterScram{OnlyFirst: true, Changes: []messages.ScramChange{set("second", messages.ScramSHA256, 4096)}})
	require.Equal(t, []metadata.ScramUser{{Name: "first", Mechanism: messages.ScramSHA256}}, w.img.ScramUsers())
	out = w.do(messages.AlterScram{Changes: []messages.ScramChange{
		set("a", messages.ScramSHA512, 4095), set("a", messages.ScramSHA256, 16385), set("", messages.ScramSHA256, 4096), set("a", 7, 4096),
		set("twice", messages.ScramSHA256, 4096), {User: "twice", Mechanism: messages.ScramSHA256, Delete: true}, {User: "first", Mechanism: messages.ScramSHA512, Delete: true},
	}})
	for i, want := range []error{
		messages.ErrUnacceptableCredential, messages.ErrUnacceptableCredential, messages.ErrUnacceptableCredential, messages.ErrUnsupportedSASL,
		messages.ErrDuplicateResource, messages.ErrDuplicateResource, messages.ErrResourceNotFound,
	} {
		require.ErrorIs(t, out.Items[i].Err, want, "change %d", i)
	}
	w.ok(messages.AlterScram{Changes: []messages.ScramChange{{User: "first", Mechanism: messages.ScramSHA256, Delete: true}}})
	require.Empty(t, w.img.ScramUsers())
}
