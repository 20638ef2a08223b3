package actors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap/zaptest/observer"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
	"kagami/test/kafka/stub"
)

func TestPlanTopicConfigs(t *testing.T) {
	const copied = configs.MirrorCopiedConfigs
	rows := []struct {
		name   string
		mirror map[string]string
		here   map[string]string
		source fetch.TopicConfigs
		want   []string // key=value, or -key
		notes  []string // parts of the texts
		errs   int
	}{
		{name: "nothing"},
		{name: "missing and different", here: map[string]string{"retention.ms": "1"},
			source: fetch.TopicConfigs{Overrides: map[string]string{"retention.ms": "2", "cleanup.policy": "compact"}}, want: []string{"cleanup.policy=compact", "retention.ms=2"}},
		{name: "equal", here: map[string]string{"retention.ms": "2"}, source: fetch.TopicConfigs{Overrides: map[string]string{"retention.ms": "2"}}},
		{name: "D31 excluded by default", here: map[string]string{"min.insync.replicas": "1"}, source: fetch.TopicConfigs{Overrides: map[string]string{
			"min.insync.replicas": "3", "message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "1", "unclean.leader.election.enable": "true"}}},
		{name: "always excluded", mirror: map[string]string{configs.MirrorTopicPropertiesExclude: "x"}, source: fetch.TopicConfigs{Overrides: map[string]string{
			"mirror.name": "other", "mirror.replication.throttled.replicas": "*", "mirror.support.unclean.leader.election": "true", copied: "retention.ms"}}},
		{name: "list overruled", mirror: map[string]string{configs.MirrorTopicPropertiesExclude: "retention.ms"},
			source: fetch.TopicConfigs{Overrides: map[string]string{"retention.ms": "3", "min.insync.replicas": "2"}}, want: []string{"min.insync.replicas=2"}},
		{name: "D52 dropped copied key, own key stays", here: map[string]string{"retention.ms": "2", "segment.bytes": "1048576", copied: "retention.ms"},
			source: fetch.TopicConfigs{Overrides: map[string]string{}}, want: []string{"-retention.ms"}},
		{name: "dropped, but excluded by now", mirror: map[string]string{configs.MirrorTopicPropertiesExclude: "retention.ms"},
			here: map[string]string{"retention.ms": "2", copied: "retention.ms"}, source: fetch.TopicConfigs{Overrides: map[string]string{}}},
		{name: "not dropped, only hidden", here: map[string]string{"retention.ms": "2", copied: "retention.ms"}, source: fetch.TopicConfigs{Hidden: []string{"retention.ms"}}},
		{name: "unknown key and bad value alone", source: fetch.TopicConfigs{Overrides: map[string]string{"future.key": "1", "segment.bytes": "many", "remote.storage.enable": "true", "retention.ms": "5"}},
			want: []string{"retention.ms=5"}, notes: []string{"future.key", "remote.storage.enable", "segment.bytes"}},
		{name: "values that don't fit what is set here", here: map[string]string{"max.compaction.lag.ms": "10"},
			source: fetch.TopicConfigs{Overrides: map[string]string{"min.compaction.lag.ms": "20"}}, notes: []string{"min.compaction.lag.ms"}},
		{name: "unreadable", here: map[string]string{"retention.ms": "2", copied: "retention.ms"}, source: fetch.TopicConfigs{Err: &fetch.CodeError{Code: 29}}, errs: 1},
		{name: "gone from the source", here: map[string]string{"retention.ms": "2", copied: "retention.ms"}, source: fetch.TopicConfigs{Err: &fetch.CodeError{Code: 3}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			topic := &metadata.Topic{Name: "t", Configs: row.here}
			before := maps.Clone(row.here)
			plan := planTopicConfigs([]*metadata.Topic{topic}, row.mirror, map[string]fetch.TopicConfigs{"t": row.source})
			var got []string
			for _, r := range plan.changes {
				for _, c := range r.Changes {
					if c.Op == messages.ConfigDelete {
						got = append(got, "-"+c.Name)
					} else {
						got = append(got, c.Name+"="+*c.Value)
					}
				}
			}
			if d := cmp.Diff(row.want, got); d != "" {
				t.Error(d)
			}
			require.Len(t, plan.errs, row.errs)
			require.Len(t, plan.notes, len(row.notes))
			for i, n := range row.notes {
				require.Contains(t, plan.notes[i].text, n)
			}
			require.Equal(t, before, row.here, "an image is never written")
		})
	}
}

// C37: configs of a topic follow the source, and those of the copy alone stay.
func TestC37D31D52TopicConfigs(t *testing.T) {
	src := stubSource(t, 1, 1)
	dir := t.TempDir()
	n := startMirrorNode(t, dir)
	const throttled = "follower.replication.throttled.replicas"
	src.Update(func(s *stub.State) {
		s.Topics["t"].Configs = map[string]string{
			"retention.ms": "3600000", "cleanup.policy": "compact", "min.insync.replicas": "3",
			"message.timestamp.type": "LogAppendTime", throttled: "*", "future.key": "1",
		}
	})
	n.create(src)
	n.begin(src, "t")
	n.alter(messages.ResourceTopic, "t", throttled, "0:1")
	n.alter(messages.ResourceTopic, "t", "segment.bytes", "1048576")
	is := func(want map[string]string) func() error {
		return func() error {
			got := maps.Clone(n.store.Image().Topic("t").Configs)
			delete(got, configs.MirrorName)
			if !maps.Equal(got, want) {
				return fmt.Errorf("%v, want %v", got, want)
			}
			return nil
		}
	}
	first := map[string]string{
		"retention.ms": "3600000", "cleanup.policy": "compact", throttled: "0:1", "segment.bytes": "1048576", configs.MirrorCopiedConfigs: "cleanup.policy,retention.ms",
	}
	n.await("copied", is(first))
	n.alter(messages.ResourceTopic, "t", "retention.ms", "7") // overwritten by the next cycle
	n.await("copied again", is(first))

	// Which keys were copied is known over a restart.
	require.NoError(t, n.stop())
	src.Update(func(s *stub.State) { delete(s.Topics["t"].Configs, "retention.ms") })
	n = startMirrorNode(t, dir)
	second := maps.Clone(first)
	delete(second, "retention.ms")
	second[configs.MirrorCopiedConfigs] = "cleanup.policy"
	n.await("removed here too", is(second))
	n.refreshTwice()
	require.Len(t, n.logs.FilterMessage("topic config isn't copied").All(), 1, "said once")

	// Paused, then stopped: nothing is copied any more.
	for _, halt := range []messages.Command{
		messages.PauseMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{Name: "t"}}},
		messages.StopMirrorTopics{Mirror: "m", Topics: []messages.MirrorTopic{{Name: "t"}}},
	} {
		n.submit(halt)
		src.Update(func(s *stub.State) { s.Topics["t"].Configs["retention.ms"] = "1" })
		n.refreshTwice()
		require.NoError(t, is(second)())
	}
}

// A topic whose configs can't be read doesn't keep the others from theirs, and is counted.
func TestSyncFailsForOneTopicOnly(t *testing.T) {
	src := stubSource(t, 1, 1)
	src.Update(func(s *stub.State) {
		s.NewTopic("u", messages.TopicID{8}, 1)
		s.Topics["t"].Configs = map[string]string{"retention.ms": "1"}
		s.Topics["u"].Configs = map[string]string{"retention.ms": "2"}
	})
	n := startMirrorNode(t, t.TempDir())
	n.create(src)
	n.begin(src, "t", "u")
	src.Edit(32, func(_ *stub.Request, resp kmsg.Response) {
		for i := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			if r := &resp.(*kmsg.DescribeConfigsResponse).Resources[i]; r.ResourceName == "t" {
				r.ErrorCode, r.Configs = 29, nil
			}
		}
	})
	n.alter(messages.ResourceTopic, "u", "retention.ms", "3")
	n.await("u is copied", func() error {
		if v := n.store.Image().Topic("u").Configs["retention.ms"]; v != "2" {
			return fmt.Errorf("retention.ms is %q", v)
		}
		return nil
	})
	n.await("counted", func() error {
		if n.Mirrors.SyncErrors(SyncTopicConfigs) == 0 {
			return fmt.Errorf("no error is counted")
		}
		return nil
	})
	require.True(t, slices.ContainsFunc(n.logs.FilterMessage("metadata sync failed, the next cycle tries again").All(), func(e observer.LoggedEntry) bool {
		return strings.Contains(fmt.Sprint(e.ContextMap()["error"]), "of t")
	}))
}
