package diff

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"kagami/test/e2e"
	"kagami/test/kafka"
)

// kafkaEnv names a running broker of Kafka 4.4 to use in place of one's own, kagamiEnv
// a running node, for work on one request.
const (
	kafkaEnv  = "KAGAMI_DIFF_KAFKA"
	kagamiEnv = "KAGAMI_DIFF_NODE"
	onlyEnv   = "KAGAMI_DIFF_ONLY" // part of the name of the steps to report
)

// TestDifferences runs the script against both and wants every difference explained.
func TestDifferences(t *testing.T) {
	sides := startSides(t)
	serves := [2]map[int16][2]int16{}
	for i, s := range sides {
		serves[i] = served(t, s)
	}
	var found []difference
	began := time.Now()
	requests := 0
	for _, st := range script() {
		for _, version := range versionsOf(st, serves) {
			d, err := run(sides, st, version)
			require.NoError(t, err, "%s v%d, %s", apiName(key(st)), version, st.name)
			found = append(found, d...)
			requests++
		}
	}
	t.Logf("%d requests to each side in %s, %d differences", requests, time.Since(began).Round(time.Millisecond), len(found))
	judge(t, found, knownDifferences(), true)
}

// startSides starts both, Kafka first.
func startSides(t *testing.T) [2]*side {
	t.Helper()
	prefix := "d" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-"
	kafkaAddr, kagamiAddr := os.Getenv(kafkaEnv), os.Getenv(kagamiEnv)
	if kafkaAddr == "" {
		settings := sharedSettings()
		settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"] = "200" // here each has its timer
		kafkaAddr = kafka.Start(t, kafka.Options{Version: kafka.V44, Properties: settings}).Addr(1)
	}
	if kagamiAddr == "" {
		kagamiAddr = e2e.StartNode(t, e2e.NodeOptions{Properties: sharedSettings()}).Bootstrap()
	}
	sides := [2]*side{newSide("Kafka", kafkaAddr, prefix), newSide("Kagami", kagamiAddr, prefix)}
	for _, s := range sides {
		t.Cleanup(s.close)
	}
	return sides
}

// sharedSettings are the same on both sides, so that they don't count as differences.
func sharedSettings() map[string]string {
	return map[string]string{
		"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5",
		"log.segment.delete.delay.ms": "500", "group.initial.rebalance.delay.ms": "0",
		// As here: a target assignment for each change, at once.
		"group.consumer.assignment.interval.ms": "0", "group.consumer.assignor.offload.enable": "false",
	}
}

func served(t *testing.T, s *side) map[int16][2]int16 {
	t.Helper()
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 4, "diff", "1"
	o, err := s.call(req, nil)
	require.NoError(t, err)
	require.Empty(t, o.end, s.name)
	out := map[int16][2]int16{}
	for _, k := range o.resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		out[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	return out
}

// versionsOf lists the versions to send a step in.
func versionsOf(st step, serves [2]map[int16][2]int16) []int16 {
	if st.exact != nil {
		return []int16{*st.exact}
	}
	k := key(st)
	a, inA := serves[0][k]
	b, inB := serves[1][k]
	if !inA || !inB {
		return nil
	}
	lo, hi := max(a[0], b[0], st.from), min(a[1], b[1], requestOf(k).MaxVersion())
	if st.to > 0 {
		hi = min(hi, st.to)
	}
	if st.once {
		lo = max(lo, hi)
	}
	var out []int16
	for v := lo; v <= hi; v++ {
		out = append(out, v)
	}
	return out
}

const untilTimeout = 20 * time.Second

// run sends one step to both at once, and compares the answers.
func run(sides [2]*side, st step, version int16) ([]difference, error) {
	answers, err := ask(sides, st, version)
	if err != nil {
		return nil, err
	}
	return differ(answers, st, version), nil
}

func differ(answers [2]flat, st step, version int16) []difference {
	found := compare(answers[0], answers[1])
	for i := range found {
		found[i].key, found[i].step, found[i].version = key(st), st.name, version
	}
	return found
}

// ask sends one step to both at once.
func ask(sides [2]*side, st step, version int16) (answers [2]flat, _ error) {
	var outs [2]outcome
	var g errgroup.Group
	for i, s := range sides {
		g.Go(func() error {
			deadline := time.Now().Add(untilTimeout)
			for {
				req := st.req(s, version)
				req.SetVersion(version)
				var body []byte
				if st.body != nil {
					body = st.body(s, version)
				}
				var err error
				if outs[i], err = s.call(req, body); err != nil {
					return err
				}
				if st.until == nil || outs[i].resp != nil && st.until(outs[i].resp) || time.Now().After(deadline) {
					break
				}
				time.Sleep(20 * time.Millisecond) // polls with a deadline
			}
			if st.keep != nil && outs[i].resp != nil {
				st.keep(s, outs[i].resp)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return answers, err
	}
	for i, s := range sides {
		answers[i] = flatten(s, outs[i])
	}
	return answers, nil
}

// judge fails for what the table doesn't explain, and, if all of it is to be used, for
// explanations of nothing.
func judge(t *testing.T, found []difference, table []known, all bool) {
	t.Helper()
	used := make([]bool, len(table))
	type where struct{ name, path, kafka, kagami string }
	var order []where
	steps := map[where][]string{}
	for _, d := range found {
		at := slices.IndexFunc(table, func(k known) bool { return k.explains(d) })
		if at >= 0 {
			used[at] = true
			continue
		}
		w := where{apiName(d.key), general(d.path), d.kafka, d.kagami}
		if steps[w] == nil {
			order = append(order, w)
		}
		steps[w] = append(steps[w], fmt.Sprintf("%s v%d", d.step, d.version))
	}
	var text strings.Builder
	for _, w := range order {
		if only := os.Getenv(onlyEnv); only == "" || strings.Contains(w.name, only) {
			fmt.Fprintf(&text, "%s %s: Kafka %s, Kagami %s\n    in %s\n", w.name, w.path, w.kafka, w.kagami, joinSteps(steps[w]))
		}
	}
	if text.Len() > 0 {
		t.Errorf("%d differences that known.go doesn't explain:\n%s", len(order), text.String())
	}
	for i, k := range table {
		if all && !used[i] && !k.seldom {
			t.Errorf("known.go explains what isn't there: %s, step %q, path %q", apiName(k.key), k.step, k.path)
		}
	}
}

var labels = regexp.MustCompile(`^([A-Za-z]+)\[[^\]]*\]`)

// general is a path without the name of its first element.
func general(path string) string { return labels.ReplaceAllString(path, "$1[*]") }

// joinSteps lists steps, each once, with its first and last version.
func joinSteps(all []string) string {
	var names []string
	span := map[string][2]string{}
	for _, s := range all {
		at := strings.LastIndex(s, " v")
		name, v := s[:at], s[at+2:]
		have, seen := span[name]
		if !seen {
			names = append(names, name)
			have[0] = v
		}
		have[1] = v
		span[name] = have
	}
	for i, n := range names {
		if v := span[n]; v[0] == v[1] {
			names[i] = fmt.Sprintf("%s (v%s)", n, v[0])
		} else {
			names[i] = fmt.Sprintf("%s (v%s-%s)", n, v[0], v[1])
		}
	}
	return strings.Join(names, ", ")
}
