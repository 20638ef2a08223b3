package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// quotaRate is what the throttled client may write and read, in bytes a second.
const quotaRate = 50_000

// throttled: the client is told to wait, knows it, and gets about its quota.
func (u matrixUse) throttled(t *testing.T) string {
	t.Helper()
	const count, size = 25, 10_000 // five seconds at the quota, less what a window lets through at first
	topic, name := u.prefix+"-throttled", u.prefix+"-slow"
	u.topic(u.ctx, t, topic, 1)
	res, err := u.side.Admin.AlterClientQuotas(u.ctx, []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: quotaRate}, {Key: "consumer_byte_rate", Value: quotaRate}},
	}})
	require.NoError(t, err)
	require.NoError(t, res[0].Err)
	said := map[string][2]int64{}
	for _, line := range u.c.job(u.ctx, t, "throttle", u.args("topic="+topic, "name="+name, fmt.Sprint("count=", count), fmt.Sprint("size=", size))...) {
		var what string
		var millis, longest int64
		_, err := fmt.Sscanf(line, "throttled %s %d %d", &what, &millis, &longest)
		require.NoError(t, err, line)
		said[what] = [2]int64{millis, longest}
	}
	for _, what := range []string{"produce", "fetch"} {
		require.Contains(t, said, what)
		millis, longest := said[what][0], said[what][1]
		rate := int64(count*size) * 1000 / max(1, millis)
		t.Logf("%s: %d bytes a second, throttled for up to %d ms", what, rate, longest)
		require.Positive(t, longest, "%s: the client's metrics show that it was throttled", what)
		require.Less(t, rate, int64(2*quotaRate), "%s: about the quota; without one it is a hundred times that", what)
	}
	require.Len(t, u.readBack(t, topic, uncommitted), count)
	return works
}
