package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// slowRate would need most of a minute for slowRecords: what isn't held is long done.
const slowRate = 100_000

var slowRecords = Records{Count: 6000, Size: 1000}

// behind fails if the topic is copied whole already.
func (w *world) behind(topic string) {
	w.t.Helper()
	require.Less(w.t, w.end(w.b, topic, 0), w.end(w.a, topic, 0), "%s isn't slowed down", topic)
}

// brokerConfig sets a dynamic config of all nodes, and takes it away if value is nil.
func (w *world) brokerConfig(key string, value *string) {
	w.t.Helper()
	op := kadm.SetConfig
	if value == nil {
		op = kadm.DeleteConfig
	}
	res, err := w.b.Admin.AlterBrokerConfigs(w.ctx, []kadm.AlterConfig{{Op: op, Name: key, Value: value}})
	require.NoError(w.t, err)
	for _, r := range res {
		require.NoError(w.t, r.Err)
	}
}

// TestD33Throttle: what is listed obeys the rate, what isn't doesn't notice. The rate is
// one of all mirrors, and a change counts at once.
func TestD33Throttle(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.topic("d33-slow", 1, 1)
	w.topic("d33-free", 1, 1)
	w.brokerConfig("mirror.replication.throttled.rate", new(fmt.Sprint(slowRate)))
	w.create("m")
	w.start("m", "d33-slow", "d33-free")
	res, err := w.b.Admin.AlterTopicConfigs(w.ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "mirror.replication.throttled.replicas", Value: new("*")}}, "d33-slow")
	require.NoError(t, err)
	for _, r := range res {
		require.NoError(t, r.Err)
	}
	w.load("d33-slow", slowRecords)
	w.load("d33-free", slowRecords)
	w.equal("d33-free")
	w.behind("d33-slow")
	w.await("m", "MIRRORING", "d33-slow")
	w.brokerConfig("mirror.replication.throttled.rate", nil)
	w.equal("d33-slow")
}

// TestD34QuotaOfTheSource: the source's quota on the client id of a mirror's worker is
// obeyed; another mirror has another client id.
func TestD34QuotaOfTheSource(t *testing.T) {
	w := newWorld(t, NodeOptions{})
	w.topic("d34-slow", 1, 1)
	w.topic("d34-free", 1, 1)
	w.load("d34-slow", slowRecords)
	w.load("d34-free", slowRecords)
	quota := func(remove bool) {
		t.Helper()
		id := "broker-1-fetcher-0-mirror-d34q"
		res, err := w.a.Admin.AlterClientQuotas(w.ctx, []kadm.AlterClientQuotaEntry{{
			Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &id}},
			Ops:    []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: slowRate, Remove: remove}},
		}})
		require.NoError(t, err)
		for _, r := range res {
			require.NoError(t, r.Err)
		}
	}
	quota(false)
	t.Cleanup(func() { quota(true) })
	w.create("d34q")
	w.create("d34p")
	startByAPI(w, "d34q", "d34-slow")
	w.start("d34p", "d34-free")
	w.equal("d34-free")
	w.behind("d34-slow")
	w.await("d34q", "MIRRORING", "d34-slow")
	quota(true)
	w.equal("d34-slow")
}
