package actors

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

func namedUser(name string) messages.QuotaEntity {
	return messages.QuotaEntity{User: messages.QuotaPart{Set: true, Name: name}}
}

func TestQuotas(t *testing.T) {
	w := newWorld(t)
	set := func(e messages.QuotaEntity, key string, value *float64) messages.AlterClientQuotas {
		return messages.AlterClientQuotas{Entries: []messages.QuotaEntry{{Entity: e, Values: []messages.QuotaValue{{Key: key, Value: value}}}}}
	}
	w.ok(set(namedUser("u"), messages.QuotaProduceRate, new(1000.0)))
	w.ok(set(namedUser("u"), messages.QuotaRequests, new(50.5)))
	require.Equal(t, map[string]float64{messages.QuotaProduceRate: 1000, messages.QuotaRequests: 50.5}, w.img.QuotaOf(namedUser("u")))
	before := w.img.Offset()
	w.ok(set(namedUser("u"), messages.QuotaProduceRate, new(1000.0)))
	require.Equal(t, before, w.img.Offset(), "nothing has changed")
	address := messages.QuotaEntity{IP: messages.QuotaPart{Set: true, Name: "10.0.0.1"}}
	both := namedUser("u")
	both.IP = address.IP
	for name, cmd := range map[string]messages.AlterClientQuotas{
		"nobody":            set(messages.QuotaEntity{}, messages.QuotaProduceRate, new(1.0)),
		"unknown key":       set(namedUser("u"), "speed", new(1.0)),
		"zero":              set(namedUser("u"), messages.QuotaProduceRate, new(0.0)),
		"fraction":          set(namedUser("u"), messages.QuotaProduceRate, new(1.5)),
		"key of another":    set(address, messages.QuotaProduceRate, new(1.0)),
		"user and address":  set(both, messages.QuotaProduceRate, new(1.0)),
		"no address":        set(messages.QuotaEntity{IP: messages.QuotaPart{Set: true, Name: "x"}}, messages.QuotaConnections, new(1.0)),
		"connections, much": set(address, messages.QuotaConnections, new(1e12)),
	} {
		out := w.do(cmd)
		require.ErrorIs(t, out.Items[0].Err, messages.ErrInvalidRequest, name)
		require.Equal(t, before, w.img.Offset(), name)
	}
	only := set(namedUser("v"), messages.QuotaFetchRate, new(5.0))
	only.ValidateOnly = true
	w.ok(only)
	require.Nil(t, w.img.QuotaOf(namedUser("v")))
	w.ok(set(namedUser("u"), messages.QuotaProduceRate, nil))
	w.ok(set(namedUser("u"), messages.QuotaRequests, nil))
	require.Empty(t, w.img.Quotas(), "an entity without limits is gone")
}

func TestFeatures(t *testing.T) {
	w := newWorld(t)
	update := func(name string, level int16, typ messages.UpgradeType) messages.UpdateFeatures {
		return messages.UpdateFeatures{Updates: []messages.FeatureUpdate{{Name: name, Level: level, Type: typ}}}
	}
	mirrors, _ := messages.FeatureByName(messages.MirrorVersionFeature)
	require.Equal(t, int16(1), w.img.FeatureLevel(mirrors))
	for name, cmd := range map[string]messages.UpdateFeatures{
		"unknown":              update("no.such.version", 1, messages.FeatureUpgrade),
		"too high":             update(messages.MirrorVersionFeature, 2, messages.FeatureUpgrade),
		"downgrade by upgrade": update(messages.MirrorVersionFeature, 0, messages.FeatureUpgrade),
		"fixed":                update("group.version", 0, messages.FeatureSafeDowngrade),
	} {
		require.ErrorIs(t, w.do(cmd).Items[0].Err, messages.ErrInvalidUpdateVersion, name)
	}
	both := update(messages.MirrorVersionFeature, 0, messages.FeatureSafeDowngrade)
	both.Updates = append(both.Updates, messages.FeatureUpdate{Name: "no.such.version", Level: 1, Type: messages.FeatureUpgrade})
	w.do(both)
	require.Equal(t, int16(1), w.img.FeatureLevel(mirrors), "all or none")
	w.ok(update(messages.MirrorVersionFeature, 0, messages.FeatureSafeDowngrade))
	require.Zero(t, w.img.MirrorVersion())
	require.ErrorIs(t, w.do(messages.CreateMirror{Name: "m"}).Err, messages.ErrUnsupportedVersion)
	w.ok(update(messages.MirrorVersionFeature, 1, messages.FeatureUpgrade))
	w.createMirror("m")
}

func TestGroupAndClientMetricsConfigs(t *testing.T) {
	w := newWorld(t)
	w.ok(alter(messages.ResourceGroup, "g", set("consumer.session.timeout.ms", "50000")...))
	w.ok(alter(messages.ResourceClientMetrics, "m", set("match", "client_id=a.*")...))
	require.Equal(t, map[string]string{"consumer.session.timeout.ms": "50000"}, w.img.GroupConfigs()["g"])
	require.Equal(t, map[string]map[string]string{"m": {"match": "client_id=a.*"}}, w.img.ClientMetrics())
	for _, bad := range []messages.AlterConfigs{
		alter(messages.ResourceGroup, "g", set("consumer.session.timeout.ms", "1")...),
		alter(messages.ResourceGroup, "g", set("no.such.config", "1")...),
		alter(messages.ResourceClientMetrics, "m", set("match", "nonsense")...),
		alter(messages.ResourceClientMetrics, "m", set("interval.ms", "1")...),
	} {
		require.ErrorIs(t, w.do(bad).Items[0].Err, messages.ErrInvalidConfig)
	}
	require.ErrorIs(t, w.do(alter(messages.ResourceGroup, "", set("consumer.session.timeout.ms", "50000")...)).Items[0].Err, messages.ErrInvalidRequest)
	w.ok(alter(messages.ResourceGroup, "g", messages.ConfigChange{Name: "consumer.session.timeout.ms", Op: messages.ConfigDelete}))
	require.Empty(t, w.img.GroupConfigs())
}

func TestElectAndReassign(t *testing.T) {
	w := newWorld(t)
	w.env.live = []messages.NodeID{1, 2, 3}
	w.ok(messages.CreateTopics{Topics: []messages.NewTopic{{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]messages.NodeID{0: {1, 2}}}}})
	id := w.img.Topic("t").ID
	part := func() []messages.NodeID { return w.img.Topic("t").Partitions[0].Replicas }
	reassign := func(inSync []messages.NodeID, replicas ...messages.NodeID) messages.ReassignPartitions {
		return messages.ReassignPartitions{Changes: []messages.Reassignment{{TopicID: id, Replicas: replicas, InSync: inSync, Resize: true}}}
	}
	w.ok(messages.ElectLeaders{Elections: []messages.Election{{TopicID: id, Node: 2}}})
	require.Equal(t, messages.NodeID(2), w.img.Topic("t").Partitions[0].Leader)
	require.ErrorIs(t, w.do(messages.ElectLeaders{Elections: []messages.Election{{TopicID: id, Node: 3}}}).Items[0].Err, messages.ErrInvalidRequest)

	all := []messages.NodeID{1, 2}
	for name, cmd := range map[string]messages.ReassignPartitions{
		"nobody":                     reassign(all),
		"twice":                      reassign(all, 1, 1),
		"unknown node":               reassign(all, 1, 9),
		"add and take away":          reassign(all, 1, 3),
		"who stays lacks something":  reassign([]messages.NodeID{2}, 1),
		"nobody of now would remain": reassign(all, 3),
	} {
		require.ErrorIs(t, w.do(cmd).Items[0].Err, messages.ErrInvalidAssignment, name)
	}
	fixed := reassign(all, 1, 2, 3)
	fixed.Changes[0].Resize = false
	require.ErrorIs(t, w.do(fixed).Items[0].Err, messages.ErrInvalidReplication)
	w.ok(reassign(all, 2, 1))
	require.Equal(t, []messages.NodeID{2, 1}, part())
	w.ok(reassign(all, 2, 1, 3))
	w.ok(reassign([]messages.NodeID{1, 2, 3}, 1, 3))
	require.Equal(t, []messages.NodeID{1, 3}, part())
	require.Equal(t, messages.NodeID(1), w.img.Topic("t").Partitions[0].Leader, "who leads is among those that stay")
}
