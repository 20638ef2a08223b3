package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
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
	addr := fs.String("admin", "localhost:9644", "admin address of any node of the cluster (journal: as that node sees it)")
	mirror := fs.String("mirror", "", "only this mirror")
	topic := fs.String("topic", "", "only this topic")
	group := fs.String("group", "", "only this group")
	prefix := fs.String("prefix", "", "only actors whose name begins so, e.g. partition/")
	credentials := fs.String("credentials", "", "file with user:password, where the admin port asks for them")
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
	login, err := readLogin(*credentials)
	if err != nil {
		return err
	}
	body, err := adminGet(ctx, *addr, "/api/"+what+"?"+params.Encode(), login)
	if err != nil {
		return err
	}
	if *asJSON {
		_, err = stdout.Write(body)
		return err
	}
	return printRows(stdout, queryColumns[what], body)
}

// readLogin reads user:password from a file: on a command line others could see it.
func readLogin(file string) (*url.Userinfo, error) {
	if file == "" {
		return nil, nil //nolint:nilnil // nobody asks
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	user, password, ok := strings.Cut(strings.TrimSpace(string(b)), ":")
	if !ok || user == "" {
		return nil, fmt.Errorf("read credentials: %s doesn't hold user:password", file)
	}
	return url.UserPassword(user, password), nil
}

func adminGet(ctx context.Context, addr, path string, login *url.Userinfo) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	if login != nil {
		password, _ := login.Password()
		req.SetBasicAuth(login.Username(), password)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s (is the node running, and is this its kagami.admin.listen?): %w", addr, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", addr, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %s", addr, resp.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
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
