package fetch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
)

// Mirrors is what the source says about mirrors of its own, merged from all its
// brokers (KIP-1279, DescribeClusterMirrors).
type Mirrors struct {
	// Supported: the source knows the request. Else nothing below is filled.
	Supported bool
	Mirrors   map[string]SourceMirror
	// Unlisted are the partitions of topics that are in a mirror there, or may be, and
	// that no broker has listed: their leader is moving. AllMirrors fills it.
	Unlisted map[messages.TopicPartition]UnlistedPartition
}

// UnlistedPartition is what its topic's mirror.name on the source says, or why that
// isn't known.
type UnlistedPartition struct {
	Mirror  string
	Desired messages.Desired
	Err     error
}

// SourceMirror is one mirror of the source: its partitions there.
type SourceMirror struct {
	Partitions map[messages.TopicPartition]MirroredPartition
}

// MirroredPartition is the source's view of a partition that it mirrors itself.
type MirroredPartition struct {
	State string // state name, StateStopped.String() when writable there
	LME   int32  // last mirror epoch, NoEpoch if none
}

// LME is the last mirror epoch of a partition in the named mirror; NoEpoch when
// the source doesn't know the request, the mirror or the partition (workflows.md
// "LOG_TRUNCATION in detail", step 2). A partition that is in the mirror there and
// that nobody lists is no such: the error wraps [ErrMirrorMoving].
func (m Mirrors) LME(mirror string, tp messages.TopicPartition) (int32, error) {
	own, known := m.Mirrors[mirror]
	if p, ok := own.Partitions[tp]; ok {
		return p.LME, nil
	}
	u, ok := m.Unlisted[tp]
	switch {
	case ok && u.Err != nil && known:
		return messages.NoEpoch, fmt.Errorf("%w: %s in mirror %s: whether it is in the mirror isn't known: %w", ErrMirrorMoving, tp, mirror, u.Err)
	case ok && u.Mirror == mirror:
		return messages.NoEpoch, fmt.Errorf("%w: %s in mirror %s", ErrMirrorMoving, tp, mirror)
	}
	return messages.NoEpoch, nil
}

// CheckLoop is OP-35: an error that wraps [ErrMirrorLoop] when topic is in a
// mirror on the source and not STOPPED there in every partition, or when the
// source is this very cluster; one that wraps [ErrMirrorMoving] when that isn't
// known now. ownID and sourceID may be "" if unknown.
func (m Mirrors) CheckLoop(topic, ownID, sourceID string) error {
	if ownID != "" && ownID == sourceID {
		return fmt.Errorf("%w: the source is this cluster (%s)", ErrMirrorLoop, ownID)
	}
	names := make([]string, 0, len(m.Mirrors))
	for name := range m.Mirrors {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for tp, p := range m.Mirrors[name].Partitions {
			if tp.Topic == topic && p.State != messages.StateStopped.String() {
				return fmt.Errorf("%w: topic %s is in mirror %s on the source, partition %d is %s; stop it there first", ErrMirrorLoop, topic, name, tp.Partition, p.State)
			}
		}
	}
	return m.unlistedLoop(topic)
}

// unlistedLoop judges the partitions of a topic that nobody lists.
func (m Mirrors) unlistedLoop(topic string) error {
	for tp, u := range m.Unlisted {
		if tp.Topic != topic || u.Err != nil {
			continue
		}
		if _, visible := m.Mirrors[u.Mirror]; visible {
			return fmt.Errorf("%w: %s in mirror %s", ErrMirrorMoving, tp, u.Mirror)
		}
		if u.Desired != messages.DesiredStopped {
			return fmt.Errorf("%w: topic %s is in mirror %s on the source, which this mirror's user may not see; stop it there first", ErrMirrorLoop, topic, u.Mirror)
		}
	}
	return nil
}

// LastMirrorEpochs asks every broker of the source about exactly one mirror.
// An error means that the answer isn't known, never that there is none: no
// broker that has the request may be left out, else a partition would look
// unknown and be cut to zero.
func (s *Source) LastMirrorEpochs(ctx context.Context, mirror string) (Mirrors, error) {
	return s.mirrors(ctx, []string{mirror})
}

// AllMirrors asks every broker of the source about all its mirrors, for the loop
// check.
func (s *Source) AllMirrors(ctx context.Context) (Mirrors, error) {
	m, err := s.mirrors(ctx, []string{})
	if err != nil || len(m.Mirrors) == 0 {
		return m, err
	}
	if m.Unlisted, err = s.unlisted(ctx, m); err != nil {
		return Mirrors{}, err
	}
	return m, nil
}

// Merge adds what the source said about one mirror, asked for by its name: the
// higher epoch where both have a partition. A mirror that it doesn't know is dropped.
func (m Mirrors) Merge(name string, named Mirrors) Mirrors {
	own, known := named.Mirrors[name]
	if !known {
		delete(m.Mirrors, name)
		return m
	}
	all, ok := m.Mirrors[name]
	if !ok {
		m.Mirrors[name] = own
		return m
	}
	for tp, p := range own.Partitions {
		if was, ok := all.Partitions[tp]; !ok || p.LME >= was.LME {
			all.Partitions[tp] = p
		}
	}
	return m
}

// unlistedChunk is how many topics are asked for their mirror.name at a time.
const unlistedChunk = 2000

// unlisted asks for mirror.name of the topics that have partitions which no broker
// listed. That is asked after the lists: a topic which left its mirror in between
// has no name any more, one which entered it has one.
func (s *Source) unlisted(ctx context.Context, m Mirrors) (map[messages.TopicPartition]UnlistedPartition, error) {
	listed := make(map[messages.TopicPartition]struct{})
	for _, sm := range m.Mirrors {
		for tp := range sm.Partitions {
			listed[tp] = struct{}{}
		}
	}
	c, err := s.metadata(ctx, nil)
	if err != nil {
		return nil, err
	}
	missing := make(map[string][]messages.TopicPartition)
	for name, t := range c.Topics {
		for n := range t.Partitions {
			tp := messages.TopicPartition{Topic: name, Partition: int32(n)}
			if _, ok := listed[tp]; !ok && !t.Internal {
				missing[name] = append(missing[name], tp)
			}
		}
	}
	out := make(map[messages.TopicPartition]UnlistedPartition)
	for names := range slices.Chunk(slices.Sorted(maps.Keys(missing)), unlistedChunk) {
		configs, err := s.topicConfigs(ctx, names, []string{messages.MirrorNameConfig})
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			u := UnlistedPartition{Err: configs[name].Err}
			if u.Err == nil {
				u.Mirror, u.Desired = messages.ParseMirrorName(configs[name].Overrides[messages.MirrorNameConfig])
			}
			if u.Mirror == "" && u.Err == nil || errors.Is(u.Err, kerr.UnknownTopicOrPartition) {
				continue
			}
			for _, tp := range missing[name] {
				out[tp] = u
			}
		}
	}
	return out, nil
}

var errMixedSource = errors.New("some brokers of the source know DescribeClusterMirrors and some don't; it is being upgraded")

func (s *Source) mirrors(ctx context.Context, names []string) (Mirrors, error) {
	out := Mirrors{Mirrors: make(map[string]SourceMirror)}
	brokers, err := s.Brokers(ctx)
	if err != nil {
		return out, err
	}
	var unanswered []error
	knowing, lacking := 0, 0
	for _, b := range brokers {
		known, err := s.mirrorsOf(ctx, b, names, out.Mirrors)
		switch {
		case IsConnection(err) && ctx.Err() == nil:
			unanswered = append(unanswered, err)
		case err != nil:
			return Mirrors{}, err
		case known:
			knowing++
		default:
			lacking++
		}
	}
	switch {
	case len(unanswered) > 0 && (lacking == 0 || knowing > 0):
		return Mirrors{}, errors.Join(unanswered...)
	case len(unanswered) > 0:
		// A broker that lacks the request speaks for its cluster, whose feature level
		// can't be up with it there: a broker out of reach holds up only its own
		// partitions (C46).
	case knowing > 0 && lacking > 0:
		return Mirrors{}, errMixedSource
	}
	out.Supported = knowing > 0
	return out, nil
}

// mirrorsOf asks one broker and merges its answer. known is false when it
// doesn't have the request or has the feature off.
func (s *Source) mirrorsOf(ctx context.Context, b Broker, names []string, into map[string]SourceMirror) (known bool, err error) {
	broker := s.client.Broker(int(b.ID))
	if known, err = s.knows(ctx, broker, b, wire.KeyDescribeClusterMirrors); !known || err != nil {
		return false, err
	}
	req := wire.NewDescribeClusterMirrorsRequest()
	req.MirrorNames = names
	kresp, err := broker.Request(ctx, &req)
	if err != nil {
		return false, &ConnectionError{Address: b.Address(), Request: "DescribeClusterMirrors", Err: err}
	}
	resp, ok := kresp.(*wire.DescribeClusterMirrorsResponse)
	if !ok {
		return false, errors.New("describe cluster mirrors: answer of another kind")
	}
	const unsupportedVersion = 35
	if resp.ErrorCode == unsupportedVersion {
		return false, nil
	}
	if err := codeError("DescribeClusterMirrors", resp.ErrorCode, resp.ErrorMessage); err != nil {
		return false, err
	}
	for _, m := range resp.Mirrors {
		if m.ErrorCode == wire.CodeUnknownClusterMirror {
			continue
		}
		if err := codeError("DescribeClusterMirrors of "+m.MirrorName, m.ErrorCode, nil); err != nil {
			return false, err
		}
		mergeMirror(into, m)
	}
	return true, nil
}

// mergeMirror keeps the higher epoch where two brokers name the same partition,
// because its leader moved between the two answers.
func mergeMirror(into map[string]SourceMirror, m wire.DescribeClusterMirrorsResponseDescribedMirror) {
	sm, ok := into[m.MirrorName]
	if !ok {
		sm = SourceMirror{Partitions: make(map[messages.TopicPartition]MirroredPartition)}
		into[m.MirrorName] = sm
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			tp := messages.TopicPartition{Topic: t.TopicName, Partition: p.PartitionIndex}
			if was, ok := sm.Partitions[tp]; ok && was.LME > p.LastMirrorEpoch {
				continue
			}
			sm.Partitions[tp] = MirroredPartition{State: p.State, LME: p.LastMirrorEpoch}
		}
	}
}

// knows asks a broker by ApiVersions whether it has a request. kgo's own refusal
// of a request that a broker lacks has no sentinel, and its text isn't ours.
func (s *Source) knows(ctx context.Context, broker *kgo.Broker, b Broker, key int16) (bool, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = softwareName, softwareVersion
	kresp, err := broker.Request(ctx, req)
	if err != nil {
		return false, &ConnectionError{Address: b.Address(), Request: "ApiVersions", Err: err}
	}
	resp, ok := kresp.(*kmsg.ApiVersionsResponse)
	if !ok {
		return false, errors.New("api versions: answer of another kind")
	}
	if err := codeError("ApiVersions", resp.ErrorCode, nil); err != nil {
		return false, err
	}
	return slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == key }), nil
}
