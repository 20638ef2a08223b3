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

func mirrorRight(name string) messages.ACL {
	a := readRight(name)
	a.Type, a.Operation = messages.ACLClusterMirror, messages.ACLAlter
	return a
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
	require.ErrorIs(t, w.do(messages.CreateACLs{Entries: []messages.ACL{readRight("no \xff text")}}).Items[0].Err, messages.ErrInvalidRequest)

	mirror := mirrorRight("x")
	w.ok(messages.CreateACLs{Entries: []messages.ACL{mirror, readRight("m")}})
	out = w.do(messages.DeleteACLs{Filters: []messages.ACLFilter{anyOf(messages.ACLAnyResource), anyOf(messages.ACLTopic), {}}})
	require.Len(t, out.Items[0].ACLs, 4)
	require.Len(t, out.Items[1].ACLs, 3, "what two filters find is in both answers")
	require.ErrorIs(t, out.Items[2].Err, messages.ErrInvalidRequest)
	require.Empty(t, w.img.ACLs())
}

// Whose an entry is (OP-31): a mirror takes away only what mirrors made, and the last of
// them only what no other one sees.
func TestFollowACLs(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m1")
	w.createMirror("m2")
	follow := func(mirror string, changes ...messages.ACLChange) messages.Outcome {
		return w.do(messages.FollowACLs{Mirror: mirror, Changes: changes})
	}
	has := func(name string) messages.ACLChange { return messages.ACLChange{ACL: readRight(name)} }
	gone := func(name string) messages.ACLChange { return messages.ACLChange{ACL: readRight(name), Gone: true} }
	owners := func(name string) []string {
		t.Helper()
		require.NotNil(t, w.img.ACL(readRight(name)), name)
		return w.img.ACL(readRight(name)).Mirrors
	}
	w.ok(messages.CreateACLs{Entries: []messages.ACL{readRight("op"), mirrorRight("op")}})

	require.NoError(t, follow("m1", has("op"), has("both"), has("both"), has("one")).Err)
	require.NoError(t, follow("m2", has("both"), has("two")).Err)
	require.Empty(t, owners("op"), "an operator's stays an operator's")
	require.Equal(t, []string{"m1", "m2"}, owners("both"))
	before := w.img.Offset()
	require.NoError(t, follow("m2", has("both"), gone("op"), gone("one"), gone("nowhere"), messages.ACLChange{ACL: mirrorRight("op"), Gone: true}).Err)
	require.Equal(t, before, w.img.Offset(), "neither an operator's nor another mirror's is touched")
	require.NotNil(t, w.img.ACL(mirrorRight("op")))

	out := follow("m1", messages.ACLChange{ACL: mirrorRight("m1")}, messages.ACLChange{}, gone("both"), gone("one"))
	require.ErrorIs(t, out.Items[0].Err, messages.ErrInvalidRequest)
	require.ErrorIs(t, out.Items[1].Err, messages.ErrInvalidRequest)
	require.NoError(t, outcomeError(messages.Outcome{Items: out.Items[2:]}))
	require.Equal(t, []string{"m2"}, owners("both"), "another mirror still sees it")
	require.Nil(t, w.img.ACL(readRight("one")))
	require.Nil(t, w.img.ACL(mirrorRight("m1")))

	w.ok(messages.CreateACLs{Entries: []messages.ACL{readRight("both")}})
	require.Empty(t, owners("both"), "an operator takes it over")
	require.NoError(t, follow("m2", gone("both")).Err)
	require.Empty(t, owners("both"))

	// What was read with other settings, or for a mirror that is gone, doesn't count.
	old := messages.FollowACLs{Mirror: "m2", Changes: []messages.ACLChange{gone("two")}, Expect: map[string]string{"bootstrap.servers": "elsewhere:1"}}
	require.ErrorIs(t, w.do(old).Err, messages.ErrSettingsChanged)
	old.Expect = map[string]string{"bootstrap.servers": "h:9092"}
	require.NoError(t, follow("m1", has("two")).Err)
	w.ok(messages.DeleteMirror{Name: "m2"})
	require.ErrorIs(t, w.do(old).Err, messages.ErrUnknownMirror)
	require.Equal(t, []string{"m1"}, owners("two"))
	w.ok(messages.DeleteMirror{Name: "m1"})
	require.Empty(t, owners("two"), "a mirror that goes leaves them to the operator")
	w.createMirror("m1")
	require.NoError(t, follow("m1", gone("two")).Err)
	require.Empty(t, owners("two"), "and another one of its name doesn't take them")
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
