package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/client"
	"kagami/messages"
	"kagami/test/kafka"
	"kagami/test/kafka/proc"
)

// liveWorld is a cluster of three nodes with two mirrors of a secured Kafka: one is changed
// all the time, the other must not notice.
type liveWorld struct {
	*world
	secured *securedKafka
	now     map[string]string // configs of mirror live
}

const (
	liveTopic, calmTopic = "k11-live", "k11-calm"
	livePartitions       = 3
)

// change gives mirror live other configs, all in one request; what isn't named goes.
func (w *liveWorld) change(configs map[string]string) {
	w.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(w.nodes.Bootstrap(), ",")...), client.MaxVersions())
	require.NoError(w.t, err)
	defer cl.Close()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(messages.ResourceClusterMirror), "live"
	for k, v := range configs {
		res.Configs = append(res.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: k, Value: &v})
	}
	for k := range w.now {
		if _, ok := configs[k]; !ok {
			res.Configs = append(res.Configs, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: k, Op: kmsg.IncrementalAlterConfigOpDelete})
		}
	}
	w.now = configs
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	require.NoError(w.t, kafka.Poll(w.ctx, func() error {
		resp, err := req.RequestWith(w.ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
		}
		return err
	}))
}

// flows waits until all partitions of both mirrors have got more.
func (w *liveWorld) flows(what string) {
	w.t.Helper()
	began := time.Now()
	ids := w.nodes.Running()
	w.growing("live", ids, liveTopic)
	w.growing("calm", ids, calmTopic)
	w.t.Logf("%s: flows after %s", what, time.Since(began).Round(time.Millisecond))
}

// stands waits until each partition of mirror live tells the text, by describe and by the
// node's own query; the other mirror goes on and tells nothing.
func (w *liveWorld) stands(want string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, healTimeout)
	defer cancel()
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		ps, err := Partitions(ctx, w.adm, "live")
		if err != nil {
			return err
		}
		told := 0
		for _, p := range ps {
			if strings.Contains(strings.ToUpper(p.ErrorText), strings.ToUpper(want)) {
				told++
			}
		}
		if told != livePartitions {
			return fmt.Errorf("%d of %d tell %s: %+v", told, livePartitions, want, ps)
		}
		return nil
	}))
	require.NoError(w.t, kafka.Poll(ctx, func() error {
		rows, err := w.nodes.Node(w.nodes.Running()[0]).Query(ctx, "mirrors")
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row["mirror"] == "live" && row["error"] != nil && strings.Contains(strings.ToUpper(fmt.Sprint(row["error"])), strings.ToUpper(want)) {
				w.t.Logf("told: %v", row["error"])
				return nil
			}
		}
		return fmt.Errorf("query mirrors: %v", rows)
	}))
	before := w.liveEnds()
	w.growing("calm", w.nodes.Running(), calmTopic)
	require.Equal(w.t, before, w.liveEnds(), "nothing is copied by wrong credentials")
	ps, err := Partitions(ctx, w.adm, "calm")
	require.NoError(w.t, err)
	for _, p := range ps {
		require.Equal(w.t, "MIRRORING", p.State)
		require.Empty(w.t, p.ErrorText)
	}
	for _, args := range [][]string{{"--describe", "--mirror", "live"}, {"--describe", "--mirror", "live", "--failed"}, {"--describe", "--json"}} {
		w.noSecret(w.run(args...))
	}
}

func (w *liveWorld) liveEnds() map[int32]Ends {
	w.t.Helper()
	ends, err := w.b.TopicEnds(w.ctx, liveTopic)
	require.NoError(w.t, err)
	return ends
}

func (w *liveWorld) noSecret(text string) {
	w.t.Helper()
	// With what stands before them in every password and page: a duration or a port may have the digits.
	for _, secret := range []string{"-4711", ">4711", "-0815"} {
		require.NotContains(w.t, text, secret)
	}
}

// faultyEndpoint stands in front of a token endpoint, and does what the mode says.
func faultyEndpoint(t *testing.T, target string) (string, *atomic.Value) {
	t.Helper()
	mode := new(atomic.Value)
	mode.Store("")
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch mode.Load() {
		case "HTTP status 500":
			rw.Header().Set("Content-Type", "text/html")
			rw.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(rw, "<html>4711</html>")
			return
		case "not a token":
			fmt.Fprint(rw, "<html>4711</html>")
			return
		case "HTTP status 307":
			http.Redirect(rw, r, target, http.StatusTemporaryRedirect)
			return
		case "no answer within":
			select {
			case <-r.Context().Done():
			case <-ended:
			}
			return
		}
		out, err := http.NewRequestWithContext(r.Context(), r.Method, target, r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		out.Header = r.Header.Clone()
		resp, err := http.DefaultClient.Do(out)
		if err != nil {
			return
		}
		defer func() { _ = resp.Body.Close() }()
		maps.Copy(rw.Header(), resp.Header)
		rw.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(rw, resp.Body)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) })
	return server.URL, mode
}

// swapped is a file with other contents, until undone.
func swapped(t *testing.T, file string, change func(string) string) (undo func()) {
	t.Helper()
	was, err := os.ReadFile(file)
	require.NoError(t, err)
	put := func(text string) {
		t.Helper()
		next := file + ".next"
		require.NoError(t, os.WriteFile(next, []byte(text), 0o600))
		require.NoError(t, os.Rename(next, file))
	}
	put(change(string(was)))
	return func() { put(string(was)) }
}

// TestSecurityLiveChange: under load, on three nodes, a mirror of a real Kafka goes from one
// kind of login to the next, to a wrong one and back, once while its coordinator's node dies;
// token endpoint and KDC fail and come back. Each time it goes on by itself, tells why while it
// can't, and another mirror doesn't notice. In the end nothing is missing or double.
// KAGAMI_SECURITY_LIVE=all has more: a wrong one of each kind, an endpoint that answers
// something else or hangs, another keytab, a controller that dies.
func TestSecurityLiveChange(t *testing.T) {
	kafka.Require(t)
	kafka.RequireProgram(t, "keytool")
	source := startSecuredKafka(t)
	long := os.Getenv("KAGAMI_SECURITY_LIVE") != ""
	nodes := StartCluster(t, ClusterOptions{
		Properties: map[string]string{"authorizer.class.name": standardAuthorizer, "super.users": "User:ANONYMOUS"},
		Env:        func(string) []string { return []string{"KRB5_CONFIG=" + source.kdc.Config} },
	})
	w := &liveWorld{world: clusterWorldOf(t, source.Cluster, nodes), secured: source}
	source.allow(w.ctx, t)
	endpoint, mode := faultyEndpoint(t, source.right["OAUTH"]["sasl.oauthbearer.token.endpoint.url"])
	source.right["OAUTH"]["sasl.oauthbearer.token.endpoint.url"] = endpoint
	right := func(name string) map[string]string { return source.right[name] }
	wrong := func(name string) map[string]string {
		out := maps.Clone(source.right[name])
		maps.Copy(out, source.wrong[name])
		return out
	}
	for _, topic := range []string{liveTopic, calmTopic} {
		w.topic(topic, livePartitions, 1)
	}
	for mirror, row := range map[string]struct{ login, topic string }{"live": {"PLAIN", liveTopic}, "calm": {"SCRAM", calmTopic}} {
		configs := map[string]*string{}
		for k, v := range right(row.login) {
			configs[k] = &v
		}
		require.NoError(t, w.adm.CreateClusterMirror(w.ctx, mirror, configs))
		startByAPI(w.world, mirror, row.topic)
	}
	w.now = right("PLAIN")
	load, err := StartLoad(source.Bootstrap(), LoadOptions{Topics: []string{liveTopic, calmTopic}, Pause: 20 * time.Millisecond})
	require.NoError(t, err)
	w.flows("PLAIN")

	w.change(right("SCRAM"))
	w.flows("SCRAM")
	w.change(wrong("SCRAM"))
	w.stands("SASL_AUTHENTICATION_FAILED")
	w.change(right("MTLS"))
	w.flows("mTLS")
	if long {
		w.change(wrong("MTLS"))
		w.stands("certificate")
	}
	w.change(right("OAUTH"))
	w.flows("OAUTHBEARER")
	faults := []string{"HTTP status 500"}
	if long {
		faults = append(faults, "not a token", "HTTP status 307", "no answer within")
	}
	for _, fault := range faults {
		mode.Store(fault)
		w.stands(fault)
		mode.Store("")
		w.flows("OAUTHBEARER after " + fault)
	}
	if long {
		w.change(wrong("OAUTH"))
		w.stands("HTTP status 401")
	}

	w.change(right("GSSAPI"))
	w.flows("GSSAPI")
	ports, err := proc.Ports(1)
	require.NoError(t, err)
	undo := swapped(t, source.kdc.Config, func(text string) string {
		before, after, _ := strings.Cut(text, "  kdc = ")
		_, after, _ = strings.Cut(after, "\n")
		return before + "  kdc = " + proc.Addr(ports[0]) + "\n" + after
	})
	w.stands("KDC")
	undo()
	w.flows("GSSAPI after the KDC was away")
	if long {
		other, err := os.ReadFile(source.kdc.Keytabs["stranger"])
		require.NoError(t, err)
		undo = swapped(t, source.kdc.Keytabs["mirror"], func(string) string { return string(other) })
		w.stands("keytab")
		undo()
		w.flows("GSSAPI after another keytab")
	}

	// A change that lands while the coordinator moves, and one while the controller does.
	deaths := []struct{ role, login string }{{"coordinator", "SCRAM"}, {"controller", "PLAIN"}}
	if !long {
		deaths = deaths[:1]
	}
	for _, row := range deaths {
		id := w.holder(row.role, "live", liveTopic)
		require.NoError(t, nodes.Node(id).Kill9())
		w.change(right(row.login))
		w.ledAt(nodes.Others(id), liveTopic, calmTopic)
		w.flows(row.login + " while the " + row.role + "'s node died")
		require.NoError(t, nodes.Start(w.ctx, id))
		w.inSync([]string{liveTopic, calmTopic, messages.MirrorStateTopic}, nodes.IDs()...)
	}
	w.flows("in the end")
	require.NoError(t, load.Stop())
	w.equal(liveTopic, calmTopic)
	w.describes("live", "MIRRORING", 0, liveTopic)
	w.describes("calm", "MIRRORING", 0, calmTopic)
	require.NoError(t, kafka.Poll(w.ctx, func() error { return sameACLs(w.ctx, w.a, w.b) }))
	for _, id := range nodes.IDs() {
		w.noSecret(nodes.Node(id).Process().Log())
		for _, path := range []string{"/metrics", "/api/mirrors", "/api/partitions?" + url.Values{"mirror": {"live"}}.Encode(), "/api/actors"} {
			body, err := nodes.Node(id).Get(w.ctx, path)
			require.NoError(t, err)
			w.noSecret(string(body))
		}
	}
}
