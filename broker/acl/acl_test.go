package acl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/persistence/metadata"
)

func imageWith(tb testing.TB, entries ...messages.ACL) *metadata.Image {
	tb.Helper()
	var records []metadata.Record
	for _, a := range entries {
		require.NoError(tb, a.Check())
		records = append(records, metadata.ACLRecord(metadata.StoredACL{ACL: a, ID: messages.NewTopicID()}))
	}
	d, err := metadata.EmptyImage().Apply(0, records)
	require.NoError(tb, err)
	return d.New
}

func user(name, host string) messages.Requester {
	return messages.Requester{Principal: "User:" + name, Host: host}
}

func allow(who string, op messages.ACLOperation, kind messages.ACLResourceType, p messages.ACLPattern, name string) messages.ACL {
	return messages.ACL{Type: kind, Pattern: p, Name: name, Principal: "User:" + who, Host: "*", Operation: op, Permission: messages.ACLAllow}
}

func deny(a messages.ACL) messages.ACL {
	a.Permission = messages.ACLDeny
	return a
}

func from(a messages.ACL, host string) messages.ACL {
	a.Host = host
	return a
}

const (
	literal  = messages.ACLLiteral
	prefixed = messages.ACLPrefixed
	topic    = messages.ACLTopic
	read     = messages.ACLRead
	write    = messages.ACLWrite
	describe = messages.ACLDescribe
)

// TestC35: deny, prefix, star and host.
func TestC35(t *testing.T) {
	payroll := deny(allow("alice", read, topic, literal, "payroll"))
	entries := []messages.ACL{
		allow("alice", read, topic, prefixed, "pay"), payroll, allow("*", describe, topic, literal, "*"), allow("bob", read, topic, prefixed, "*"),
		from(allow("carol", write, topic, literal, "pay1"), "10.0.0.5"), allow("dave", messages.ACLIdempotentWrite, messages.ACLCluster, literal, messages.ACLClusterName),
	}
	img := imageWith(t, entries...)
	a := New(Options{Image: func() *metadata.Image { return img }})
	for _, tc := range []struct {
		who  messages.Requester
		op   messages.ACLOperation
		name string
		want bool
	}{
		{user("alice", "1.1.1.1"), read, "pay1", true},
		{user("alice", "1.1.1.1"), read, "payroll", false},
		{user("alice", "1.1.1.1"), describe, "payroll", true}, // read is denied, not describe
		{user("alice", "1.1.1.1"), write, "pay1", false},
		{user("bob", "1.1.1.1"), read, "foo", false},
		{user("bob", "1.1.1.1"), read, "*foo", true},
		{user("bob", "1.1.1.1"), describe, "foo", true},
		{user("carol", "10.0.0.5"), write, "pay1", true},
		{user("carol", "::ffff:10.0.0.5"), write, "pay1", true},
		{user("carol", "10.0.0.6"), write, "pay1", false},
		{user("carol", "10.0.0.5"), write, "pay12", false},
		{user("ANONYMOUS", "1.1.1.1"), describe, "anything", true},
	} {
		require.Equal(t, tc.want, a.Allowed(tc.who, tc.op, topic, tc.name), "%s %s %s", tc.who.Principal, tc.op, tc.name)
	}
	require.True(t, a.Allowed(user("dave", "x"), messages.ACLIdempotentWrite, messages.ACLCluster, messages.ACLClusterName))
	d, err := img.Apply(100, []metadata.Record{metadata.RemoveACLRecord(img.ACL(payroll).ID)})
	require.NoError(t, err)
	img = d.New
	require.True(t, a.Allowed(user("alice", "1.1.1.1"), read, topic, "payroll"), "the index follows the image")
}

func TestAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []messages.ACL
		op      messages.ACLOperation
		kind    messages.ACLResourceType
		on      string
		none    bool // allow.everyone.if.no.acl.found
		want    bool
	}{
		"nothing":                              {op: read, kind: topic, on: "t"},
		"nothing, and that is enough":          {op: read, kind: topic, on: "t", none: true, want: true},
		"an entry of somebody else":            {entries: []messages.ACL{allow("b", read, topic, literal, "t")}, op: read, kind: topic, on: "t", none: true},
		"an entry about another resource":      {entries: []messages.ACL{allow("b", read, topic, literal, "u")}, op: read, kind: topic, on: "t", none: true, want: true},
		"an entry about another type":          {entries: []messages.ACL{allow("a", read, messages.ACLGroup, literal, "t")}, op: read, kind: topic, on: "t"},
		"all":                                  {entries: []messages.ACL{allow("a", messages.ACLAll, topic, literal, "t")}, op: messages.ACLAlterConfigs, kind: topic, on: "t", want: true},
		"all is denied":                        {entries: []messages.ACL{allow("a", read, topic, literal, "t"), deny(allow("a", messages.ACLAll, topic, prefixed, "t"))}, op: read, kind: topic, on: "t"},
		"a star denies":                        {entries: []messages.ACL{allow("a", read, topic, literal, "t"), deny(allow("*", read, topic, literal, "*"))}, op: read, kind: topic, on: "t"},
		"write implies describe":               {entries: []messages.ACL{allow("a", write, topic, literal, "t")}, op: describe, kind: topic, on: "t", want: true},
		"delete implies describe":              {entries: []messages.ACL{allow("a", messages.ACLDelete, topic, literal, "t")}, op: describe, kind: topic, on: "t", want: true},
		"alter implies describe":               {entries: []messages.ACL{allow("a", messages.ACLAlter, topic, literal, "t")}, op: describe, kind: topic, on: "t", want: true},
		"create doesn't":                       {entries: []messages.ACL{allow("a", messages.ACLCreate, topic, literal, "t")}, op: describe, kind: topic, on: "t"},
		"alter configs implies their describe": {entries: []messages.ACL{allow("a", messages.ACLAlterConfigs, topic, literal, "t")}, op: messages.ACLDescribeConfigs, kind: topic, on: "t", want: true},
		"a denied write denies no describe":    {entries: []messages.ACL{allow("a", read, topic, literal, "t"), deny(allow("a", write, topic, literal, "t"))}, op: describe, kind: topic, on: "t", want: true},
		"a denied describe does":               {entries: []messages.ACL{allow("a", read, topic, literal, "t"), deny(allow("a", describe, topic, literal, "t"))}, op: describe, kind: topic, on: "t"},
		"a mirror":                             {entries: []messages.ACL{allow("a", messages.ACLAlter, messages.ACLClusterMirror, prefixed, "m")}, op: messages.ACLAlter, kind: messages.ACLClusterMirror, on: "mm", want: true},
		"a type that there isn't":              {op: read, kind: 99, on: "t", none: true},
	} {
		t.Run(name, func(t *testing.T) {
			img := imageWith(t, tc.entries...)
			a := New(Options{Image: func() *metadata.Image { return img }, SuperUsers: []string{"User:root"}, AllowIfNone: tc.none})
			require.Equal(t, tc.want, a.Allowed(user("a", "1.1.1.1"), tc.op, tc.kind, tc.on))
			require.True(t, a.Allowed(user("root", "1.1.1.1"), tc.op, tc.kind, tc.on))
		})
	}
}

// TestAllowedAny is KIP-679: an idempotent producer needs a topic that it may write to.
func TestAllowedAny(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []messages.ACL
		want    bool
	}{
		"nothing":                           {},
		"one topic":                         {[]messages.ACL{allow("a", write, topic, literal, "t")}, true},
		"another one's":                     {[]messages.ACL{allow("b", write, topic, literal, "t")}, false},
		"another operation":                 {[]messages.ACL{allow("a", read, topic, literal, "t")}, false},
		"a prefix":                          {[]messages.ACL{allow("a", write, topic, prefixed, "t")}, true},
		"a star":                            {[]messages.ACL{allow("*", write, topic, literal, "*")}, true},
		"all is denied":                     {[]messages.ACL{allow("a", write, topic, literal, "t"), deny(allow("a", write, topic, literal, "*"))}, false},
		"that one is denied":                {[]messages.ACL{allow("a", write, topic, literal, "t"), deny(allow("a", write, topic, literal, "t"))}, false},
		"a prefix of it is denied":          {[]messages.ACL{allow("a", write, topic, literal, "tt"), deny(allow("*", messages.ACLAll, topic, prefixed, "t"))}, false},
		"a part of the prefix is denied":    {[]messages.ACL{allow("a", write, topic, prefixed, "t"), deny(allow("a", write, topic, prefixed, "tt"))}, true},
		"a literal of the prefix's name":    {[]messages.ACL{allow("a", write, topic, prefixed, "t"), deny(allow("a", write, topic, literal, "t"))}, true},
		"the prefix is denied, not another": {[]messages.ACL{allow("a", write, topic, prefixed, "t"), deny(allow("a", write, topic, prefixed, "t")), allow("a", write, topic, prefixed, "u")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			img := imageWith(t, tc.entries...)
			a := New(Options{Image: func() *metadata.Image { return img }})
			require.Equal(t, tc.want, a.AllowedAny(user("a", "1.1.1.1"), write, topic))
		})
	}
}

// What is asked per topic of every request takes no memory.
func BenchmarkAllowed(b *testing.B) {
	entries := make([]messages.ACL, 0, 1000)
	for i := range 1000 {
		entries = append(entries, allow("a", read, topic, messages.ACLPattern(3+i%2), string(rune('a'+i%26))+string(rune('a'+i/26))))
	}
	img := imageWith(b, entries...)
	a := New(Options{Image: func() *metadata.Image { return img }})
	who := user("a", "10.0.0.1")
	b.ReportAllocs()
	for b.Loop() {
		a.Allowed(who, read, topic, "cdefgh")
	}
}

func TestAllowedTakesNoMemory(t *testing.T) {
	img := imageWith(t, allow("a", read, topic, prefixed, "cd"), from(deny(allow("a", read, topic, literal, "*")), "10.0.0.2"))
	a := New(Options{Image: func() *metadata.Image { return img }})
	who := user("a", "10.0.0.1")
	require.True(t, a.Allowed(who, read, topic, "cdefgh"))
	require.Zero(t, testing.AllocsPerRun(100, func() { a.Allowed(who, read, topic, "cdefgh") }))
}
