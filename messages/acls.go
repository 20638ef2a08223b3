package messages

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ACLOperation is an operation that rights are about, with Kafka's numbers.
type ACLOperation int8

// The operations. Any stands in filters only, All in entries.
const (
	ACLAny             ACLOperation = 1
	ACLAll             ACLOperation = 2
	ACLRead            ACLOperation = 3
	ACLWrite           ACLOperation = 4
	ACLCreate          ACLOperation = 5
	ACLDelete          ACLOperation = 6
	ACLAlter           ACLOperation = 7
	ACLDescribe        ACLOperation = 8
	ACLClusterAction   ACLOperation = 9
	ACLDescribeConfigs ACLOperation = 10
	ACLAlterConfigs    ACLOperation = 11
	ACLIdempotentWrite ACLOperation = 12
	ACLCreateTokens    ACLOperation = 13
	ACLDescribeTokens  ACLOperation = 14
	ACLTwoPhaseCommit  ACLOperation = 15
)

var aclOperationNames = []string{
	"UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
	"DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
}

// String is Kafka's name.
func (o ACLOperation) String() string { return named(aclOperationNames, int(o), "ACLOperation") }

// ACLResourceType is a kind of resource, with Kafka's numbers.
type ACLResourceType int8

// The resource types. Any stands in filters only; ClusterMirror is KIP-1279's.
const (
	ACLAnyResource     ACLResourceType = 1
	ACLTopic           ACLResourceType = 2
	ACLGroup           ACLResourceType = 3
	ACLCluster         ACLResourceType = 4
	ACLTransactionalID ACLResourceType = 5
	ACLDelegationToken ACLResourceType = 6
	ACLUser            ACLResourceType = 7
	ACLClusterMirror   ACLResourceType = 8
)

var aclResourceNames = []string{"UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER", "CLUSTER_MIRROR"}

// String is Kafka's name.
func (t ACLResourceType) String() string { return named(aclResourceNames, int(t), "ACLResourceType") }

// ACLPattern says how an entry's resource name is meant, with Kafka's numbers.
type ACLPattern int8

// The patterns. Any and Match stand in filters only: Match finds what counts for a name.
const (
	ACLPatternAny   ACLPattern = 1
	ACLPatternMatch ACLPattern = 2
	ACLLiteral      ACLPattern = 3
	ACLPrefixed     ACLPattern = 4
)

// String is Kafka's name.
func (p ACLPattern) String() string {
	return named([]string{"UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"}, int(p), "ACLPattern")
}

// ACLPermission is what an entry says, with Kafka's numbers.
type ACLPermission int8

// The permissions. Any stands in filters only.
const (
	ACLPermissionAny ACLPermission = 1
	ACLDeny          ACLPermission = 2
	ACLAllow         ACLPermission = 3
)

// String is Kafka's name.
func (p ACLPermission) String() string {
	return named([]string{"UNKNOWN", "ANY", "DENY", "ALLOW"}, int(p), "ACLPermission")
}

func named(names []string, n int, kind string) string {
	if n < 0 || n >= len(names) {
		return fmt.Sprintf("%s(%d)", kind, n)
	}
	return names[n]
}

const (
	// ACLWildcard is the name that stands for every resource, host, or (behind "User:")
	// every user.
	ACLWildcard = "*"
	// ACLClusterName is the only resource of type ACLCluster.
	ACLClusterName = "kafka-cluster"
	// aclTextMax bounds names, principals and hosts of entries.
	aclTextMax = 4096
)

// ACL is one entry: who may, or may not, do what with which resources, from where. It can
// be compared.
type ACL struct {
	Type       ACLResourceType
	Pattern    ACLPattern
	Name       string
	Principal  string // User:name, User:*
	Host       string // an address, or *
	Operation  ACLOperation
	Permission ACLPermission
}

// Compare orders entries, for lists.
func (a ACL) Compare(o ACL) int {
	return cmp.Or(cmp.Compare(a.Type, o.Type), cmp.Compare(a.Name, o.Name), cmp.Compare(a.Pattern, o.Pattern), cmp.Compare(a.Principal, o.Principal),
		cmp.Compare(a.Host, o.Host), cmp.Compare(a.Operation, o.Operation), cmp.Compare(a.Permission, o.Permission))
}

// String is the entry in one line, for logs and audits.
func (a ACL) String() string {
	name := a.Name
	if a.Pattern == ACLPrefixed {
		name = "prefix " + name
	}
	return fmt.Sprintf("%s %s %s %s %s from %s", a.Permission, a.Principal, a.Operation, a.Type, name, a.Host)
}

// aclOperations are the operations that make sense on a type, beside All.
var aclOperations = map[ACLResourceType][]ACLOperation{
	ACLTopic:           {ACLRead, ACLWrite, ACLCreate, ACLDescribe, ACLDelete, ACLAlter, ACLDescribeConfigs, ACLAlterConfigs},
	ACLGroup:           {ACLRead, ACLDescribe, ACLDelete, ACLDescribeConfigs, ACLAlterConfigs},
	ACLCluster:         {ACLCreate, ACLClusterAction, ACLDescribeConfigs, ACLAlterConfigs, ACLIdempotentWrite, ACLAlter, ACLDescribe},
	ACLTransactionalID: {ACLDescribe, ACLWrite, ACLTwoPhaseCommit},
	ACLDelegationToken: {ACLDescribe},
	ACLUser:            {ACLCreateTokens, ACLDescribeTokens},
	ACLClusterMirror:   {ACLCreate, ACLAlter, ACLDescribe, ACLDelete, ACLAlterConfigs, ACLDescribeConfigs},
}

// ACLOperations lists the operations that make sense on a type, beside All.
func ACLOperations(t ACLResourceType) []ACLOperation { return aclOperations[t] }

// Check returns nil if the entry may be stored, else an error that wraps
// ErrInvalidRequest.
func (a ACL) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalidRequest, fmt.Sprintf(format, args...))
	}
	kind, _, _ := strings.Cut(a.Principal, ":")
	switch {
	case aclOperations[a.Type] == nil:
		return bad("invalid resource type %s", a.Type)
	case a.Pattern != ACLLiteral && a.Pattern != ACLPrefixed:
		return bad("invalid pattern type %s", a.Pattern)
	case a.Permission != ACLAllow && a.Permission != ACLDeny:
		return bad("invalid permission type %s", a.Permission)
	case a.Operation < ACLAll || a.Operation > ACLTwoPhaseCommit:
		return bad("invalid operation %s", a.Operation)
	case a.Name == "":
		return bad("resource name must not be empty")
	case a.Type == ACLCluster && a.Name != ACLClusterName:
		return bad("the only valid name for the CLUSTER resource is %s", ACLClusterName)
	case kind == "" || kind == a.Principal:
		return bad("could not parse principal from %q (no colon is present separating the principal type from the principal name)", a.Principal)
	case a.Host == "":
		return bad("host must not be empty")
	case len(a.Name) > aclTextMax || len(a.Principal) > aclTextMax || len(a.Host) > aclTextMax:
		return bad("resource name, principal or host is longer than %d bytes", aclTextMax)
	case !utf8.ValidString(a.Name) || !utf8.ValidString(a.Principal) || !utf8.ValidString(a.Host):
		return bad("resource name, principal or host isn't UTF-8") // another one on the other side of the wire
	}
	return nil
}

// ACLFilter finds entries. Nil texts are any.
type ACLFilter struct {
	Type       ACLResourceType
	Pattern    ACLPattern
	Name       *string
	Principal  *string
	Host       *string
	Operation  ACLOperation
	Permission ACLPermission
}

// Check returns nil if the filter can be asked for, else an error that wraps
// ErrInvalidRequest.
func (f ACLFilter) Check() error {
	switch {
	case f.Type != ACLAnyResource && aclOperations[f.Type] == nil:
		return fmt.Errorf("%w: Unknown ResourceType %d", ErrInvalidRequest, int8(f.Type))
	case f.Pattern < ACLPatternAny || f.Pattern > ACLPrefixed:
		return fmt.Errorf("%w: Unknown PatternType %d", ErrInvalidRequest, int8(f.Pattern))
	case f.Operation < ACLAny || f.Operation > ACLTwoPhaseCommit:
		return fmt.Errorf("%w: Unknown Operation %d", ErrInvalidRequest, int8(f.Operation))
	case f.Permission < ACLPermissionAny || f.Permission > ACLAllow:
		return fmt.Errorf("%w: Unknown PermissionType %d", ErrInvalidRequest, int8(f.Permission))
	}
	return nil
}

// Matches reports whether the filter finds the entry.
func (f ACLFilter) Matches(a ACL) bool {
	switch {
	case f.Type != ACLAnyResource && f.Type != a.Type:
		return false
	case f.Operation != ACLAny && f.Operation != a.Operation, f.Permission != ACLPermissionAny && f.Permission != a.Permission:
		return false
	case f.Principal != nil && *f.Principal != a.Principal, f.Host != nil && *f.Host != a.Host:
		return false
	}
	switch f.Pattern {
	case ACLPatternMatch:
		return f.Name == nil || a.Covers(*f.Name)
	case ACLLiteral, ACLPrefixed:
		return f.Pattern == a.Pattern && (f.Name == nil || *f.Name == a.Name)
	case ACLPatternAny:
	}
	return f.Name == nil || *f.Name == a.Name
}

// Covers reports whether the entry is about a resource of that name.
func (a ACL) Covers(name string) bool {
	if a.Pattern == ACLPrefixed {
		return strings.HasPrefix(name, a.Name)
	}
	return a.Name == name || a.Name == ACLWildcard
}

// CreateACLs adds an operator's entries; one item per entry in the answer. One that is
// there already is no fault.
type CreateACLs struct{ Entries []ACL }

// DeleteACLs removes what filters find; one item per filter in the answer, with the
// entries in ACLs.
type DeleteACLs struct{ Filters []ACLFilter }

// FollowACLs is what a mirror changes to follow its source's entries, in this order; one
// item per change in the answer. Only entries that mirrors made are ever changed or
// removed (OP-31), and none about cluster mirrors is made.
type FollowACLs struct {
	Mirror  string
	Changes []ACLChange
	// Expect is as in [AlterConfigs]: what was read of an earlier source doesn't count.
	Expect map[string]string
}

// ACLChange is an entry that a mirror's source has, or (Gone) has no more.
type ACLChange struct {
	ACL
	Gone bool
}

func (CreateACLs) command() {}
func (DeleteACLs) command() {}
func (FollowACLs) command() {}
