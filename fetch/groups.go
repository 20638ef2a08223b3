package fetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
)

// ErrSecurityDisabled says that the source has no authorizer, so it has no ACLs.
var ErrSecurityDisabled = errors.New("the source has no authorizer")

// SourceGroup is a group of the source.
type SourceGroup struct {
	Name string
	// Type is "classic", "consumer", "share" or "streams"; "" where the source is too
	// old to say (before 3.8), and then it is a classic one.
	Type  string
	State string // "" before 2.6
	// Protocol is "consumer" for consumers, also when the group is empty but has
	// committed by a member; "" for offsets that were committed without members.
	Protocol string
}

// Groups lists the groups that the mirror's credentials may see, from all
// brokers. An error means that at least one broker didn't answer; the groups of
// the others come with it.
func (s *Source) Groups(ctx context.Context) ([]SourceGroup, error) {
	listed, err := kadm.NewClient(s.client).ListGroups(ctx)
	groups := make([]SourceGroup, 0, len(listed))
	for _, g := range listed.Sorted() {
		groups = append(groups, SourceGroup{Name: g.Group, Type: g.GroupType, State: g.State, Protocol: g.ProtocolType})
	}
	if err != nil {
		return groups, s.kadmError("ListGroups", err)
	}
	return groups, nil
}

// CommittedOffset is an offset that a group committed on the source.
type CommittedOffset struct {
	Offset      int64
	LeaderEpoch int32 // NoEpoch if none was committed with it
	Metadata    string
}

// GroupOffsets is what a group has committed, or why that isn't known. Partitions with
// an error of their own are left out.
type GroupOffsets struct {
	Offsets map[messages.TopicPartition]CommittedOffset
	Err     error
}

// GroupsOffsets reads what consumer groups have committed, topics that they don't read
// any more included, with one request for each broker that
// coordinates some (2.8 and later; before that one for each group). Every group is in
// the answer.
func (s *Source) GroupsOffsets(ctx context.Context, groups []string) map[string]GroupOffsets {
	fetched := kadm.NewClient(s.client).FetchManyOffsets(ctx, groups...)
	out := make(map[string]GroupOffsets, len(groups))
	for _, name := range groups {
		f, ok := fetched[name]
		switch {
		case !ok:
			out[name] = GroupOffsets{Err: s.unanswered("OffsetFetch of group "+name, errNotInAnswer)}
		case f.Err != nil:
			out[name] = GroupOffsets{Err: s.kadmError("OffsetFetch of group "+name, f.Err)}
		default:
			out[name] = GroupOffsets{Offsets: committedOffsets(f.Fetched)}
		}
	}
	return out
}

func committedOffsets(fetched kadm.OffsetResponses) map[messages.TopicPartition]CommittedOffset {
	out := make(map[messages.TopicPartition]CommittedOffset)
	fetched.Each(func(o kadm.OffsetResponse) {
		if o.Err == nil && o.At >= 0 {
			out[messages.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = CommittedOffset{Offset: o.At, LeaderEpoch: o.LeaderEpoch, Metadata: o.Metadata}
		}
	})
	return out
}

// SourceACL is one ACL binding of the source, in Kafka's numbers.
type SourceACL struct {
	ResourceType int8
	ResourceName string
	PatternType  int8 // 3 literal, 4 prefixed
	Principal    string
	Host         string
	Operation    int8
	Permission   int8 // 2 deny, 3 allow
}

// ACLs reads every ACL of the source. Without an authorizer there the error
// wraps [ErrSecurityDisabled]. The answer is whole or an error.
func (s *Source) ACLs(ctx context.Context) ([]SourceACL, error) { return s.acls(ctx, s.client) }

// ACLsOf is ACLs as one broker knows them: it may lag behind the others.
func (s *Source) ACLsOf(ctx context.Context, b Broker) ([]SourceACL, error) {
	return s.acls(ctx, s.client.Broker(int(b.ID)))
}

func (s *Source) acls(ctx context.Context, from kmsg.Requestor) ([]SourceACL, error) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	kresp, err := from.Request(ctx, req)
	if err != nil {
		return nil, s.unanswered("DescribeAcls", err)
	}
	resp, ok := kresp.(*kmsg.DescribeACLsResponse)
	if !ok {
		return nil, errors.New("describe acls: answer of another kind")
	}
	if resp.ErrorCode == kerr.SecurityDisabled.Code {
		return nil, fmt.Errorf("read ACLs: %w", ErrSecurityDisabled)
	}
	if err := codeError("DescribeAcls", resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	var out []SourceACL
	for _, r := range resp.Resources {
		pattern := r.ResourcePatternType
		if resp.Version == 0 {
			pattern = kmsg.ACLResourcePatternTypeLiteral // the only one before 2.0
		}
		for _, a := range r.ACLs {
			out = append(out, SourceACL{
				ResourceType: int8(r.ResourceType), ResourceName: r.ResourceName, PatternType: int8(pattern),
				Principal: a.Principal, Host: a.Host, Operation: int8(a.Operation), Permission: int8(a.PermissionType),
			})
		}
	}
	return out, nil
}

// KnowsShareGroups reports whether the source tells offsets of share groups (4.0 and
// later, where they are turned on). It asks the first of the brokers.
func (s *Source) KnowsShareGroups(ctx context.Context, brokers []Broker) (bool, error) {
	if len(brokers) == 0 {
		return false, s.unanswered("DescribeShareGroupOffsets", errors.New("the source names no brokers"))
	}
	key := kmsg.NewPtrDescribeShareGroupOffsetsRequest().Key()
	return s.knows(ctx, s.client.Broker(int(brokers[0].ID)), brokers[0], key)
}

// ShareOffsets is where a share group begins in each partition that it has a state of, or
// why that isn't known.
type ShareOffsets struct {
	Starts map[messages.TopicPartition]int64
	Err    error
}

// ShareGroupsOffsets reads the start offsets of share groups. Every group is in the
// answer. Ask [Source.KnowsShareGroups] first.
func (s *Source) ShareGroupsOffsets(ctx context.Context, groups []string) map[string]ShareOffsets {
	out := make(map[string]ShareOffsets, len(groups))
	if len(groups) == 0 {
		return out // kadm would take it for all groups
	}
	described, err := kadm.NewClient(s.client).DescribeShareGroupOffsets(ctx, groups...)
	byName := map[string]kadm.DescribedShareGroupOffsets{}
	for _, g := range described {
		byName[g.Group] = g
	}
	for _, name := range groups {
		request := "DescribeShareGroupOffsets of group " + name
		g, ok := byName[name]
		switch {
		case !ok && err != nil:
			out[name] = ShareOffsets{Err: s.kadmError(request, err)}
		case !ok:
			out[name] = ShareOffsets{Err: s.unanswered(request, errNotInAnswer)}
		case g.Err != nil:
			out[name] = ShareOffsets{Err: s.kadmError(request, g.Err)}
		default:
			out[name] = ShareOffsets{Starts: startOffsets(g)}
		}
	}
	return out
}

func startOffsets(g kadm.DescribedShareGroupOffsets) map[messages.TopicPartition]int64 {
	out := make(map[messages.TopicPartition]int64)
	for _, partitions := range g.Offsets {
		for _, o := range partitions {
			if o.Err == nil && o.StartOffset >= 0 {
				out[messages.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.StartOffset
			}
		}
	}
	return out
}

// kadmError keeps the two kinds of this package apart: an error code is an
// answer, everything else is none.
func (s *Source) kadmError(request string, err error) error {
	if k, ok := errors.AsType[*kerr.Error](err); ok {
		return &CodeError{Request: request, Code: k.Code}
	}
	return s.unanswered(request, err)
}
