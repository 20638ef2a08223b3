package diff

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// rightsEnv set to all runs every set of rights, set to begins of names, comma separated, those.
const rightsEnv = "KAGAMI_DIFF_RIGHTS"

// someRights is what a user may do, and no more.
type someRights struct {
	name  string
	give  []kmsg.CreateACLsRequestCreation
	quick bool // runs always
}

// onAll allows an operation on everything of a type that the script names.
func onAll(kind messages.ACLResourceType, op messages.ACLOperation) kmsg.CreateACLsRequestCreation {
	c := kmsg.NewCreateACLsRequestCreation()
	c.ResourceType, c.ResourcePatternType, c.Operation = kmsg.ACLResourceType(kind), kmsg.ACLResourcePatternTypePrefixed, kmsg.ACLOperation(op)
	if kind == messages.ACLCluster {
		c.ResourcePatternType, c.ResourceName = kmsg.ACLResourcePatternTypeLiteral, messages.ACLClusterName
	}
	c.Principal, c.Host, c.PermissionType = "User:nobody", "*", kmsg.ACLPermissionTypeAllow
	return c
}

func denied(c kmsg.CreateACLsRequestCreation) kmsg.CreateACLsRequestCreation {
	c.PermissionType = kmsg.ACLPermissionTypeDeny
	return c
}

func fromHost(host string, c kmsg.CreateACLsRequestCreation) kmsg.CreateACLsRequestCreation {
	c.Host = host
	return c
}

func forUser(principal string, c kmsg.CreateACLsRequestCreation) kmsg.CreateACLsRequestCreation {
	c.Principal = principal
	return c
}

// partialRights are sets of rights: each single one, and what belongs together.
func partialRights() []someRights {
	var out []someRights
	for _, kind := range []messages.ACLResourceType{messages.ACLTopic, messages.ACLGroup, messages.ACLTransactionalID, messages.ACLCluster} {
		for _, op := range append(messages.ACLOperations(kind), messages.ACLAll) {
			out = append(out, someRights{name: kind.String() + " " + op.String(), quick: kind == messages.ACLTopic && op == messages.ACLDescribe, give: []kmsg.CreateACLsRequestCreation{onAll(kind, op)}})
		}
	}
	read, write, all := onAll(messages.ACLTopic, messages.ACLRead), onAll(messages.ACLTopic, messages.ACLWrite), onAll(messages.ACLTopic, messages.ACLAll)
	group, txn := onAll(messages.ACLGroup, messages.ACLRead), onAll(messages.ACLTransactionalID, messages.ACLWrite)
	return append(out,
		someRights{name: "denied over allowed", give: []kmsg.CreateACLsRequestCreation{all, denied(read), denied(onAll(messages.ACLTopic, messages.ACLDescribe))}},
		someRights{name: "denied to everybody", give: []kmsg.CreateACLsRequestCreation{all, group, forUser("User:*", denied(write))}},
		someRights{name: "from another host", give: []kmsg.CreateACLsRequestCreation{fromHost("10.9.8.7", all), fromHost("127.0.0.1", group)}},
		someRights{name: "consumer", give: []kmsg.CreateACLsRequestCreation{read, group}},
		someRights{name: "transactional producer", give: []kmsg.CreateACLsRequestCreation{write, txn, group}},
	)
}

// TestPartialRights sends the newest version of everything as somebody with some rights:
// both allow, refuse and tell alike.
func TestPartialRights(t *testing.T) {
	root, user := startGuarded(t)
	serves := [2]map[int16][2]int16{served(t, user[0]), served(t, user[1])}
	only := os.Getenv(rightsEnv)
	var found []difference
	requests, began := 0, time.Now()
	for _, st := range slices.Concat(rightsSetup(), coordinatorSteps()) {
		st.once = true
		for _, version := range versionsOf(st, serves) {
			_, err := run(root, st, version)
			require.NoError(t, err)
		}
	}
	for i, rights := range partialRights() {
		if only == "" && !rights.quick || only != "" && only != "all" && !slices.ContainsFunc(strings.Split(only, ","), func(begin string) bool { return strings.HasPrefix(rights.name, begin) }) {
			continue
		}
		t.Log(rights.name, time.Since(began))
		for n := range root {
			for _, s := range []*side{root[n], user[n]} {
				s.prefix = "p" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + "-"
			}
			clear(user[n].kept)
			setRights(t, root[n], rights.give)
		}
		for _, st := range rightsSetup() {
			st.once = true
			for _, version := range versionsOf(st, serves) {
				_, err := run(root, st, version)
				require.NoError(t, err)
			}
		}
		for _, st := range script() {
			st.once = true
			st.until = nil
			if st.body != nil || st.name == "null records" {
				continue // what is malformed is so for everybody, and Kafka answers the second never
			}
			for _, version := range versionsOf(st, serves) {
				d, err := run(user, st, version)
				require.NoError(t, err, "%s v%d, %s", apiName(key(st)), version, st.name)
				for _, one := range d {
					if one.step = rights.name + ": " + one.step; aboutRights(one) {
						found = append(found, one)
					}
				}
				requests++
			}
		}
	}
	t.Logf("%d requests to each side in %s, %d differences", requests, time.Since(began).Round(time.Millisecond), len(found))
	var table []known
	for _, k := range append(rightsKnown(), knownDifferences()...) {
		k.step = "*" + k.step
		table = append(table, k)
	}
	judge(t, found, append(partialKnown(), table...), false)
}

// coordinatorSteps wait until groups and transactions have coordinators that have loaded.
func coordinatorSteps() []step {
	found := func(kind int8) step {
		return step{name: "a coordinator", req: func(s *side, _ int16) kmsg.Request {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorType, req.CoordinatorKeys = kind, []string{s.n("any")}
			return req
		}, until: func(resp kmsg.Response) bool {
			return resp.(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode == 0
		}}
	}
	ready := func(code int16) bool { return code != 14 && code != 15 && code != 16 }
	return []step{
		found(0), found(1),
		{name: "a group's", req: func(s *side, _ int16) kmsg.Request {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups = []string{s.n("any"), s.n("g"), s.n("group"), s.n("x")}
			return req
		}, until: func(resp kmsg.Response) bool {
			return !slices.ContainsFunc(resp.(*kmsg.DescribeGroupsResponse).Groups, func(g kmsg.DescribeGroupsResponseGroup) bool { return !ready(g.ErrorCode) })
		}},
		{name: "a transaction's", req: func(s *side, _ int16) kmsg.Request {
			req := kmsg.NewPtrDescribeTransactionsRequest()
			req.TransactionalIDs = []string{s.n("any"), s.n("a"), s.n("tx"), s.n("x")}
			return req
		}, until: func(resp kmsg.Response) bool {
			return !slices.ContainsFunc(resp.(*kmsg.DescribeTransactionsResponse).TransactionStates, func(x kmsg.DescribeTransactionsResponseTransactionState) bool { return !ready(x.ErrorCode) })
		}},
	}
}

// aboutRights: one side refuses for want of a right and the other doesn't, one shows what the other
// hides, or they say otherwise what may be done. What else differs is TestDifferences' business; here
// nobody waits until a cluster has done what it has promised.
func aboutRights(d difference) bool {
	refused := func(value string) bool { return strings.Contains(value, "AUTHORIZATION_FAILED") }
	shows := d.kafka == "absent" || d.kagami == "absent"
	return refused(d.kafka) != refused(d.kagami) || shows || strings.HasSuffix(d.path, "AuthorizedOperations")
}

// setRights takes all entries away and gives these.
func setRights(t *testing.T, root *side, give []kmsg.CreateACLsRequestCreation) {
	t.Helper()
	del := kmsg.NewPtrDeleteACLsRequest()
	del.Version = 3
	del.Filters = []kmsg.DeleteACLsRequestFilter{{ResourceType: 1, ResourcePatternType: 1, Operation: 1, PermissionType: 1}}
	o, err := root.call(del, nil)
	require.NoError(t, err)
	require.Zero(t, o.resp.(*kmsg.DeleteACLsResponse).Results[0].ErrorCode)
	req := kmsg.NewPtrCreateACLsRequest()
	req.Version = 3
	for _, c := range give {
		if c.ResourceName == "" {
			c.ResourceName = root.prefix
		}
		req.Creations = append(req.Creations, c)
	}
	o, err = root.call(req, nil)
	require.NoError(t, err)
	for _, r := range o.resp.(*kmsg.CreateACLsResponse).Results {
		require.Zero(t, r.ErrorCode, "%s: %v", root.name, r.ErrorMessage)
	}
}

// partialKnown are differences that only who has some rights sees.
func partialKnown() []known {
	const order = "What is wrong with the request beside is told first, or last: nothing comes of it."
	return []known{
		{key: 1, step: "*as a replica*", path: "Topics[*].Partitions[*].ErrorCode", kafka: "29 *", kagami: "6 *", why: "Nobody fetches as a replica (OP-24), whatever he may."},
		{key: 75, path: "Topics[*].AuthorizedOperations", kagami: "-2147483648", why: "With what isn't there nothing can be done."},
		{key: 23, path: "Topics[*].Partitions[*].ErrorCode", kagami: "29 *", why: "Kafka's followers ask with CLUSTER_ACTION alone; ours don't ask."},
		{key: 1, step: "*as a replica*", path: "Topics[*].Partitions[*].ErrorCode", kafka: "6 *", kagami: "29 *", why: "Nobody fetches as a replica (OP-24), whatever he may."},
		{key: 32, step: "*after: *", path: "Resources[*].Configs[*]*", why: "What earlier users have set; TestDifferences looks at it."},
		{key: 68, step: "*an empty instance", path: "ErrorCode", kafka: "29 *", kagami: "42 *", why: order},
		{key: 8, step: "*in an old version", path: "Topics[*].Partitions[*].ErrorCode", kafka: "29 *", why: order},
		{key: 20, step: "*an id", path: "Topics[*]", why: "The name of a topic is told to who may describe it."},
		{key: 3, step: "*of transactions", path: "Topics[*]", why: "Ids that nobody waited for have no name in this test."},
		{key: 1, step: "*transaction", path: "Topics[*]", why: "Ids that nobody waited for have no name in this test."},
		{key: 48, step: "*the last one", path: "Entries[*]*", why: "Nobody waits here until Kafka has applied the quota; TestDifferences does."},
		{key: 8, path: "Topics[*]*", why: "Topics of which neither knows the id stand in another order."},
	}
}
