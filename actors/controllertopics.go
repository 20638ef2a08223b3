package actors

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// partitionsMax bounds a topic; see commandRecordsMax.
const partitionsMax = 100_000

func (p *plan) createTopics(c messages.CreateTopics) {
	for _, t := range c.Topics {
		if t.Name == messages.MirrorStateTopic {
			t = p.mirrorStateTopic()
		} else if t.Name == messages.ConsumerOffsetsTopic {
			t = p.consumerOffsetsTopic()
		} else if t.Name == messages.TransactionStateTopic {
			t = p.transactionStateTopic()
		} else if t.Name == messages.ShareGroupStateTopic {
			t = p.shareGroupStateTopic()
		} else if messages.IsInternalTopic(t.Name) {
			p.item(t.Name, fmt.Errorf("%w: %s is made by the cluster itself", messages.ErrInvalidTopic, t.Name))
			continue
		}
		before := len(p.records)
		var item messages.Item
		if item.Err = p.checkCollision(t.Name); item.Err == nil {
			item, item.Err = p.createTopic(t)
		}
		item.Name = t.Name
		if c.ValidateOnly || item.Err != nil {
			p.records = p.records[:before]
		}
		if c.ValidateOnly {
			item.TopicID = messages.TopicID{}
		}
		p.items = append(p.items, item)
	}
}

// createTopic adds the records of a new topic after every check.
func (p *plan) createTopic(t messages.NewTopic) (messages.Item, error) {
	if err := p.checkNewTopic(t); err != nil {
		return messages.Item{}, err
	}
	if t.ID.IsZero() {
		t.ID = p.env.newID()
	}
	assignment, err := p.assign(t)
	if err != nil {
		return messages.Item{}, err
	}
	values, err := newTopicConfigs(t.Configs)
	if err != nil {
		return messages.Item{}, err
	}
	p.remember(t.Name, t.ID)
	p.addTopic(t.Name, t.ID, assignment)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		v := values[key]
		p.setConfig(messages.ResourceTopic, t.Name, key, &v)
	}
	return messages.Item{TopicID: t.ID, Partitions: int32(len(assignment)), Replication: int16(len(assignment[0]))}, nil
}

func (p *plan) checkNewTopic(t messages.NewTopic) error {
	if err := messages.CheckTopicName(t.Name); err != nil {
		return err
	}
	if _, ours := p.newTopics[t.Name]; ours || p.img.Topic(t.Name) != nil {
		return fmt.Errorf("%w: topic %s", messages.ErrTopicExists, t.Name)
	}
	if t.ID.IsZero() {
		return nil
	}
	if other := p.img.TopicByID(t.ID); other != nil {
		return fmt.Errorf("%w: topic id %s belongs to topic %s", messages.ErrTopicExists, t.ID, other.Name)
	}
	if _, ours := p.newIDs[t.ID]; ours {
		return fmt.Errorf("%w: topic id %s is given twice", messages.ErrTopicExists, t.ID)
	}
	return nil
}

// checkCollision refuses a client's topic whose name differs from another's only
// in '.' and '_', as Kafka does for the sake of its metric names. Mirror topics
// are exempt (C27): their names are the sources' to choose, two sources may each
// have one, and nothing here depends on the difference.
func (p *plan) checkCollision(name string) error {
	if other, ok := p.names()[squash(name)]; ok && other != name {
		return fmt.Errorf("%w: topic name %s collides with topic %s: they differ only in '.' and '_'", messages.ErrInvalidTopic, name, other)
	}
	return nil
}

func (p *plan) names() map[string]string {
	if p.squashed == nil {
		p.squashed = make(map[string]string)
		for _, t := range p.img.Topics() {
			p.squashed[squash(t.Name)] = t.Name
		}
	}
	return p.squashed
}

func (p *plan) remember(name string, id messages.TopicID) {
	if p.newTopics == nil {
		p.newTopics = make(map[string]struct{})
		p.newIDs = make(map[messages.TopicID]struct{})
	}
	p.newTopics[name] = struct{}{}
	p.newIDs[id] = struct{}{}
	p.names()[squash(name)] = name
}

func (p *plan) addTopic(name string, id messages.TopicID, assignment [][]messages.NodeID) {
	r := wire.NewPtrTopicRecord()
	r.Name, r.TopicID = name, id
	p.add(r)
	for n, replicas := range assignment {
		p.addPartition(id, int32(n), replicas)
	}
}

// addPartition adds a partition led by its first replica, leader epoch 0.
func (p *plan) addPartition(id messages.TopicID, n int32, replicas []messages.NodeID) {
	p.add(metadata.PartitionRecord(id, n, metadata.Partition{Leader: replicas[0], Replicas: replicas, ISR: replicas}))
}

// assign returns the replicas of every partition of a new topic.
func (p *plan) assign(t messages.NewTopic) ([][]messages.NodeID, error) {
	if len(t.Assignment) > 0 {
		return p.assignByHand(t)
	}
	count, factor := t.Partitions, int(t.ReplicationFactor)
	if count == -1 {
		count = int32(p.settings().Int(configs.NumPartitions))
	}
	if count < 1 || count > partitionsMax {
		return nil, fmt.Errorf("%w: %d, want 1 to %d, or -1 for the default", messages.ErrInvalidPartitions, t.Partitions, partitionsMax)
	}
	if factor == -1 {
		factor = p.settings().Int(configs.DefaultReplicationFactor)
	}
	if err := p.checkFactor(factor); err != nil {
		return nil, err
	}
	out := make([][]messages.NodeID, count)
	for n := range out {
		out[n] = p.spread(t.Name, t.ID, int32(n), factor)
	}
	return out, nil
}

func (p *plan) checkFactor(factor int) error {
	switch {
	case factor < 1:
		return fmt.Errorf("%w: %d, want at least 1, or -1 for the default", messages.ErrInvalidReplication, factor)
	case factor > len(p.env.live):
		return fmt.Errorf("%w: %d replicas wanted, %d node(s) live", messages.ErrInvalidReplication, factor, len(p.env.live))
	}
	return nil
}

func (p *plan) assignByHand(t messages.NewTopic) ([][]messages.NodeID, error) {
	if t.Partitions != -1 || t.ReplicationFactor != -1 {
		return nil, fmt.Errorf("%w: with an assignment, partitions and replication factor must be -1", messages.ErrInvalidRequest)
	}
	out := make([][]messages.NodeID, len(t.Assignment))
	for n := range out {
		replicas, ok := t.Assignment[int32(n)]
		if !ok {
			return nil, fmt.Errorf("%w: partitions must be numbered from 0 without holes, %d is missing", messages.ErrInvalidAssignment, n)
		}
		if len(replicas) != len(t.Assignment[0]) {
			return nil, fmt.Errorf("%w: partition %d has %d replicas, partition 0 has %d", messages.ErrInvalidAssignment, n, len(replicas), len(t.Assignment[0]))
		}
		if err := p.checkReplicas(n, replicas); err != nil {
			return nil, err
		}
		out[n] = replicas
	}
	return out, nil
}

func (p *plan) checkReplicas(partition int, replicas []messages.NodeID) error {
	if len(replicas) == 0 {
		return fmt.Errorf("%w: partition %d has no replicas", messages.ErrInvalidAssignment, partition)
	}
	for i, n := range replicas {
		switch {
		case slices.Contains(replicas[:i], n):
			return fmt.Errorf("%w: partition %d names node %d twice", messages.ErrInvalidAssignment, partition, n)
		case !slices.Contains(p.env.live, n):
			return fmt.Errorf("%w: node %d of partition %d isn't live", messages.ErrInvalidAssignment, n, partition)
		}
	}
	return nil
}

// newTopicConfigs checks the configs that a client gives a new topic.
func newTopicConfigs(given map[string]*string) (map[string]string, error) {
	values := make(map[string]string, len(given))
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if err := configs.Topic().Settable(key); err != nil {
			return nil, err
		}
		if given[key] == nil {
			return nil, fmt.Errorf("%w: %s has no value", messages.ErrInvalidConfig, key)
		}
		values[key] = *given[key]
	}
	return values, configs.Topic().Validate(values)
}

// mirrorStateTopic is __mirror_state (spec: records.md): as many replicas as
// there are nodes, at most the configured number (OP-29); large records (OP-45).
func (p *plan) mirrorStateTopic() messages.NewTopic {
	v := p.settings()
	factor := min(v.Int(configs.MirrorStateTopicRF), len(p.env.live))
	return messages.NewTopic{
		Name: messages.MirrorStateTopic, Partitions: int32(v.Int(configs.MirrorStateTopicPartitions)), ReplicationFactor: int16(factor),
		Configs: map[string]*string{
			configs.CleanupPolicy: new("compact"), configs.CompressionType: new("producer"),
			configs.RetentionMs: new("-1"), configs.MaxMessageBytes: new(strconv.Itoa(16 << 20)),
		},
	}
}

// consumerOffsetsTopic is __consumer_offsets, as Kafka makes it; with as many
// replicas as there are nodes, at most the configured number.
func (p *plan) consumerOffsetsTopic() messages.NewTopic {
	v := p.settings()
	factor := min(v.Int(configs.OffsetsTopicRF), len(p.env.live))
	return messages.NewTopic{
		Name: messages.ConsumerOffsetsTopic, Partitions: int32(v.Int(configs.OffsetsTopicPartitions)), ReplicationFactor: int16(factor),
		Configs: map[string]*string{
			configs.CleanupPolicy: new("compact"), configs.CompressionType: new("producer"),
			configs.SegmentBytes: new(strconv.Itoa(v.Int(configs.OffsetsTopicSegmentBytes))),
		},
	}
}

// transactionStateTopic is __transaction_state, likewise.
func (p *plan) transactionStateTopic() messages.NewTopic {
	v := p.settings()
	factor := min(v.Int(configs.TransactionTopicRF), len(p.env.live))
	return messages.NewTopic{
		Name: messages.TransactionStateTopic, Partitions: int32(v.Int(configs.TransactionTopicPartitions)), ReplicationFactor: int16(factor),
		Configs: map[string]*string{
			configs.CleanupPolicy: new("compact"), configs.CompressionType: new("uncompressed"),
			configs.SegmentBytes: new(strconv.Itoa(v.Int(configs.TransactionTopicSegmentBytes))),
		},
	}
}

// shareGroupStateTopic is __share_group_state, likewise. Kafka's coordinator deletes
// what is superseded by itself; here the cleaner does, by key.
func (p *plan) shareGroupStateTopic() messages.NewTopic {
	v := p.settings()
	factor := min(v.Int(configs.ShareStateTopicRF), len(p.env.live))
	return messages.NewTopic{
		Name: messages.ShareGroupStateTopic, Partitions: int32(v.Int(configs.ShareStateTopicPartitions)), ReplicationFactor: int16(factor),
		Configs: map[string]*string{
			configs.CleanupPolicy: new("compact"), configs.CompressionType: new("producer"),
			configs.SegmentBytes: new(strconv.Itoa(v.Int(configs.ShareStateTopicSegmentBytes))),
		},
	}
}

func (p *plan) deleteTopics(c messages.DeleteTopics) {
	gone := make(map[messages.TopicID]bool)
	one := func(t *metadata.Topic, name string, missing error) {
		item := messages.Item{Name: name}
		switch {
		case t == nil || gone[t.ID]:
			item.Err = missing
		case messages.IsInternalTopic(t.Name):
			item.TopicID, item.Err = t.ID, fmt.Errorf("%w: internal topic %s can't be deleted", messages.ErrInvalidRequest, t.Name)
		default:
			gone[t.ID] = true
			item.Name, item.TopicID = t.Name, t.ID
			r := wire.NewPtrRemoveTopicRecord()
			r.TopicID = t.ID
			p.add(r)
		}
		p.items = append(p.items, item)
	}
	for _, name := range c.Names {
		one(p.img.Topic(name), name, fmt.Errorf("%w: topic %q", messages.ErrUnknownTopicOrPartition, name))
	}
	for _, id := range c.IDs {
		one(p.img.TopicByID(id), "", fmt.Errorf("%w: %s", messages.ErrUnknownTopicID, id))
	}
}

func (p *plan) createPartitions(c messages.CreatePartitions) {
	done := make(map[string]bool)
	for _, want := range c.Topics {
		t := p.img.Topic(want.Topic)
		before := len(p.records)
		err := p.growTopic(t, want, c.Mirror)
		if err == nil && done[want.Topic] {
			err = fmt.Errorf("%w: topic %s is named twice", messages.ErrInvalidRequest, want.Topic)
		}
		if err != nil || c.ValidateOnly {
			p.records = p.records[:before]
		}
		done[want.Topic] = true
		item := messages.Item{Name: want.Topic, Err: err}
		if t != nil {
			item.TopicID, item.Partitions = t.ID, int32(len(t.Partitions))
			if err == nil {
				item.Partitions = want.Count
			}
		}
		p.items = append(p.items, item)
	}
}

func (p *plan) growTopic(t *metadata.Topic, want messages.PartitionCount, mirror bool) error {
	switch {
	case t == nil:
		return fmt.Errorf("%w: topic %q", messages.ErrUnknownTopicOrPartition, want.Topic)
	case messages.IsInternalTopic(t.Name):
		return fmt.Errorf("%w: the partitions of internal topic %s can't be changed", messages.ErrInvalidRequest, t.Name)
	case mirror && t.Desired != messages.DesiredActive:
		return fmt.Errorf("%w: topic %s is not active in a mirror", messages.ErrInvalidMirrorStates, t.Name)
	case !mirror && (t.Desired == messages.DesiredActive || t.Desired == messages.DesiredPaused):
		return fmt.Errorf("%w: topic %s belongs to mirror %s and is %s there; it gets partitions when the source does",
			messages.ErrReadOnlyTopic, t.Name, t.Mirror, t.Desired)
	case int(want.Count) <= len(t.Partitions):
		return fmt.Errorf("%w: topic %s has %d partitions, %d is not more", messages.ErrInvalidPartitions, t.Name, len(t.Partitions), want.Count)
	case want.Count > partitionsMax:
		return fmt.Errorf("%w: %d, at most %d", messages.ErrInvalidPartitions, want.Count, partitionsMax)
	}
	first := int32(len(t.Partitions))
	factor := len(t.Partitions[0].Replicas)
	if want.Assignment == nil {
		if err := p.checkFactor(factor); err != nil {
			return err
		}
		for n := first; n < want.Count; n++ {
			p.addPartition(t.ID, n, p.spread(t.Name, t.ID, n, factor))
		}
		return nil
	}
	if len(want.Assignment) != int(want.Count-first) {
		return fmt.Errorf("%w: %d partitions are new, %d are assigned", messages.ErrInvalidAssignment, want.Count-first, len(want.Assignment))
	}
	for i, replicas := range want.Assignment {
		n := first + int32(i)
		if len(replicas) != factor {
			return fmt.Errorf("%w: partition %d has %d replicas, the topic has %d", messages.ErrInvalidAssignment, n, len(replicas), factor)
		}
		if err := p.checkReplicas(int(n), replicas); err != nil {
			return err
		}
		p.addPartition(t.ID, n, replicas)
	}
	return nil
}
