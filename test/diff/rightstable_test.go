package diff

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages/wire"
)

// rightsPage tells what a user without rights is answered, rightsWrite has TestRights write it.
const (
	rightsPage  = "../../docs/rights.md"
	rightsWrite = "KAGAMI_RIGHTS_WRITE"
)

const rightsHead = `# Without rights

<!-- Made by TestRights of test/diff with KAGAMI_RIGHTS_WRITE=1. Without it the test compares. -->

What a user without any rights is answered, by the errors that are about rights: the test sends each request, also in versions that neither
serves, to Apache Kafka 4.4 and to Kagami, with their authorizers on. Afterwards the metadata, the ends of all logs, the groups
and the transactions are what they were. Requests in which nothing is refused need no right, or leave out what may not be
seen. Which rights requests about mirrors need, which Kafka doesn't have, is in [security.md](security.md#rights).

| Key | Request | Versions asked in | Kafka 4.4 | Kagami |
| --- | --- | --- | --- | --- |
`

// refusedCodes are the errors about rights: of topics, groups, the cluster, transactional ids, logins and
// delegation tokens, mirrors.
var refusedCodes = []int16{29, 30, 31, 53, 58, 61, 65, wire.CodeClusterMirrorAuthorizationFailed}

// refusals are what each side answers to each request, by its key.
type refusals map[int16]*refusal

type refusal struct {
	from, to int16 // versions
	codes    [2]map[string]bool
}

func (r refusals) add(key, version int16, answers [2]flat) {
	one := r[key]
	if one == nil {
		one = &refusal{from: version, to: version, codes: [2]map[string]bool{{}, {}}}
		r[key] = one
	}
	one.from, one.to = min(one.from, version), max(one.to, version)
	for i, answer := range answers {
		for path, value := range answer {
			if strings.HasSuffix(path, "ErrorCode") && slices.ContainsFunc(refusedCodes, func(c int16) bool { return code(c) == value }) {
				one.codes[i][value] = true
			}
		}
	}
}

func (r refusals) page() string {
	var out strings.Builder
	out.WriteString(rightsHead)
	told := func(key int16, side int) string {
		codes := r[key].codes[side]
		switch {
		case side == 0 && wire.KeyName(key) != "":
			return "-"
		case len(codes) == 0:
			return "nothing is refused"
		}
		return strings.Join(slices.Sorted(maps.Keys(codes)), ", ")
	}
	for _, key := range slices.Sorted(maps.Keys(r)) {
		one := r[key]
		fmt.Fprintf(&out, "| %d | %s | %d to %d | %s | %s |\n", key, apiName(key), one.from, one.to, told(key, 0), told(key, 1))
	}
	return out.String()
}

// check compares the page with what was answered, or writes it.
func (r refusals) check(t *testing.T) {
	t.Helper()
	if os.Getenv(rightsWrite) != "" {
		require.NoError(t, os.WriteFile(rightsPage, []byte(r.page()), 0o644))
		return
	}
	b, err := os.ReadFile(rightsPage)
	require.NoError(t, err)
	require.Equal(t, string(b), r.page(), "write it with %s=1", rightsWrite)
}

// mirrorRequests name a mirror that isn't there, which who may not see it isn't told.
func mirrorRequests() []kmsg.Request {
	const m = "m"
	return []kmsg.Request{
		&wire.CreateClusterMirrorRequest{MirrorName: m, Config: []wire.CreateClusterMirrorRequestClusterMirrorConfig{{Name: "bootstrap.servers", Value: new("127.0.0.1:1")}}},
		&wire.StartMirrorTopicsRequest{MirrorName: m, Topics: []wire.StartMirrorTopicsRequestTopicData{{TopicName: "t"}}},
		&wire.StopMirrorTopicsRequest{MirrorName: m, Topics: []wire.StopMirrorTopicsRequestTopicData{{TopicName: "t"}}},
		&wire.ListClusterMirrorsRequest{},
		&wire.DescribeClusterMirrorsRequest{MirrorNames: []string{m}},
		&wire.ReadMirrorStatesRequest{MirrorName: m},
		&wire.WriteMirrorStatesRequest{MirrorName: m},
		&wire.PauseMirrorTopicsRequest{MirrorName: m, Topics: []wire.PauseMirrorTopicsRequestTopicData{{TopicName: "t"}}},
		&wire.ResumeMirrorTopicsRequest{MirrorName: m, Topics: []wire.ResumeMirrorTopicsRequestTopicData{{TopicName: "t"}}},
		&wire.DeleteClusterMirrorRequest{MirrorName: m},
		&wire.BumpLeaderEpochsRequest{},
		&wire.RecoverMirrorTopicsRequest{MirrorName: m, Topics: []wire.RecoverMirrorTopicsRequestTopicData{{TopicName: "t"}}},
		&wire.ReadMetadataLogRequest{MaxBytes: 1},
		&wire.PlanMirrorStartRequest{MirrorName: m},
	}
}

// askMirrors sends ours what only we serve.
func (r refusals) askMirrors(t *testing.T, ours *side) {
	t.Helper()
	for _, req := range mirrorRequests() {
		for version := range req.MaxVersion() + 1 {
			req.SetVersion(version)
			o, err := ours.call(req, nil)
			require.NoError(t, err)
			require.NotNil(t, o.resp, "%s v%d: %s", apiName(req.Key()), version, o.end)
			r.add(req.Key(), version, [2]flat{1: flatten(ours, o)})
		}
	}
	for _, key := range wire.Keys() {
		require.Contains(t, r, key, "%s isn't asked", wire.KeyName(key))
	}
}
