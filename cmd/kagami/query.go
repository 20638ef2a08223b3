package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
)

// queryColumns are the columns of the tables, by query, in order. JSON has all
// fields.
var queryColumns = map[string][]string{
	"partitions": {"mirror", "topic", "partition", "node", "state", "desired", "leaderEpoch", "logStart", "end", "sourceOffset", "lag", "lme", "attempt", "error"},
	"mirrors":    {"mirror", "coordinator", "node", "sourceClusterId", "bootstrap", "topics", "partitions", "failed", "lag", "lastRefresh", "error"},
	"actors":     {"node", "actor", "kind", "detail"},
	"nodes":      {"node", "live", "controller", "leaders", "coordinators", "behind", "journalLag", "beatAge", "rack"},
	"groups":     {"group", "node", "type", "state", "protocolType", "members", "offsets", "epoch", "shard", "error"},
	"journal":    {"shard", "streamLeader", "current", "copies", "first", "last", "bytes", "node", "applied", "behind", "isolated", "error"},
}

// runQuery asks a node's admin port and prints a table or JSON.
func runQuery(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := pflag.NewFlagSet("query", pflag.ContinueOnError)
	const line = "query partitions|mirrors|actors|nodes|journal|groups [options]"
	var at adminOptions
	at.flags(fs, "localhost:9644", "admin address of any node of the cluster (journal: as that node sees it)")
	mirror := fs.String("mirror", "", "only this mirror")
	topic := fs.String("topic", "", "only this topic")
	group := fs.String("group", "", "only this group")
	prefix := fs.String("prefix", "", "only actors whose name begins so, e.g. partition/")
	asJSON := fs.Bool("json", false, "print the answer as JSON")
	timeout := fs.Duration("timeout", 15*time.Second, "give up after this long")
	if err := parse(fs, line, 1, args, stdout, stderr); err != nil {
		return err
	}
	if queryColumns[fs.Arg(0)] == nil {
		return usageFault(fs, line, stderr, fmt.Sprintf("want partitions, mirrors, actors, nodes, journal or groups, not %q", fs.Arg(0)))
	}
	what := fs.Arg(0)
	params := url.Values{}
	if *mirror != "" {
		params.Set("mirror", *mirror)
	}
	if *topic != "" {
		params.Set("topic", *topic)
	}
	if *group != "" {
		params.Set("group", *group)
	}
	if *prefix != "" {
		params.Set("prefix", *prefix)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	c, err := newAdminClient(at)
	if err != nil {
		return err
	}
	body, err := c.get(ctx, "/api/"+what+"?"+params.Encode())
	if err != nil {
		return err
	}
	if *asJSON {
		_, err = stdout.Write(body)
		return err
	}
	return printRows(stdout, queryColumns[what], body)
}

func printRows(w io.Writer, columns []string, body []byte) error {
	var rows []map[string]any
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.UseNumber()
	if err := dec.Decode(&rows); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	sayf(tw, "%s\n", title(strings.Join(columns, "\t")))
	for _, row := range rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = cell(row[c])
		}
		sayf(tw, "%s\n", strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return unreachable(w, rows)
}

// unreachable names the nodes that didn't answer: their rows have state "-".
func unreachable(w io.Writer, rows []map[string]any) error {
	var nodes []string
	for _, row := range rows {
		if row["unreachable"] == true {
			if n := cell(row["node"]); !slices.Contains(nodes, n) {
				nodes = append(nodes, n)
			}
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "warning: no answer from node %s\n", strings.Join(nodes, ", "))
	return err
}

// title turns sourceOffset into SOURCE-OFFSET.
func title(field string) string {
	return strings.ToUpper(capital.ReplaceAllString(field, "$1-$2"))
}

var capital = regexp.MustCompile("([a-z])([A-Z])")

func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" {
			return "-"
		}
		return v
	case json.Number:
		if v.String() == "-1" {
			return "-"
		}
		return v.String()
	default:
		return fmt.Sprint(v)
	}
}
