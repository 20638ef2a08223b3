package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// clientsPage is docs/clients.md.
var clientsPage = filepath.Join("..", "..", "docs", "clients.md")

// clientsHead begins the page.
const clientsHead = `# Clients

<!-- Made by TestClientMatrix of test/e2e with KAGAMI_CLIENTS_WRITE=1. Without it the test compares. -->

What each client does against a Kagami node, with nothing changed but the address. The table is what a run of
` + "`go test ./test/e2e -run TestClientMatrix`" + ` saw, part of the ordinary tests: the test fails if it sees anything else. In each
line content counts, not exit codes: what a client writes is read by two others and compared with what it was told (partition,
offset, order, each record once), what it commits is looked up by another.

- **produce**: 20 records with keys and headers in each codec that the client has.
- **idempotent produce**: the answer to a Produce request is lost with its connection after the records have been stored; the
  client sends them again, and each is stored once, in order, with sequence numbers without a hole.
- **transactions**: committed and aborted ones, copies of records together with their offsets in a group, and a producer whose
  id another takes over, while an answer to each kind of request is lost once; committed readers see the right records, and the
  group stands where the last committed one says.
- **group**: a member joins, another joins, the first leaves, the other leaves, while records come: nothing is left out, each
  member has its share, the group stands at the end afterwards.
- **admin**: topics, partitions, configs, records, offsets and groups made, changed, described and removed; the state is
  compared with another client's view.
- **client quota**: a client that writes and reads more than its quota is told to wait, its own metrics show that, and it gets
  no more than twice the quota over some seconds.
- **kafka-...**: Kafka's command line tools of that release; what they write, read, show and change is compared likewise, and
  none of them may log a warning.

`

// clientsTable begins the table.
const clientsTable = "| Client | Version | Feature | Result |\n| --- | --- | --- | --- |\n"

// clientRow is one line of the table.
type clientRow struct{ client, version, feature, result string }

func (r clientRow) String() string {
	return fmt.Sprintf("| %s | %s | %s | %s |", r.client, r.version, r.feature, r.result)
}

// clientReport gathers what a run has seen.
type clientReport struct {
	mu   sync.Mutex
	rows map[string][]clientRow // by client and version
	keys []string               // in the page's order
}

func newClientReport() *clientReport { return &clientReport{rows: map[string][]clientRow{}} }

// expect gives a client its place in the page.
func (r *clientReport) expect(client, version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, client+" "+version)
}

// add takes in all rows of a client.
func (r *clientReport) add(rows []clientRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[rows[0].client+" "+rows[0].version] = rows
}

// whole: every client that was expected has its rows.
func (r *clientReport) whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.rows) == len(r.keys)
}

// seen are all rows in the page's order.
func (r *clientReport) seen() []clientRow {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []clientRow
	for _, key := range r.keys {
		out = append(out, r.rows[key]...)
	}
	return out
}

// parseClients reads the table of a page.
func parseClients(page string) []clientRow {
	_, table, _ := strings.Cut(page, clientsTable)
	var rows []clientRow
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 {
			break
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, clientRow{cells[0], cells[1], cells[2], cells[3]})
	}
	return rows
}

// installed are clients whose version is the machine's, not this repository's.
func installed(client string) bool { return client == "kcat" }

// differences of the page's rows from those seen: rows of clients that this run has done
// whole. complete says that it has done all of them.
func differences(page, seen []clientRow, complete bool) []string {
	same := func(rows []clientRow) []string {
		var out []string
		for _, r := range rows {
			if installed(r.client) {
				r.version = "*"
			}
			out = append(out, r.String())
		}
		return out
	}
	did := map[string]bool{}
	for _, r := range same(seen) {
		cells := strings.Split(r, "|")
		did[cells[1]+cells[2]] = true
	}
	var out []string
	have, want := same(seen), same(page)
	for _, r := range have {
		if !slices.Contains(want, r) {
			out = append(out, "the run saw what the page doesn't say: "+r)
		}
	}
	for _, r := range want {
		cells := strings.Split(r, "|")
		if !slices.Contains(have, r) && (complete || did[cells[1]+cells[2]]) {
			out = append(out, "the page says what the run didn't see: "+r)
		}
	}
	return out
}

// check compares the page with the run, or writes it.
func (r *clientReport) check(t *testing.T, complete bool) {
	t.Helper()
	seen := r.seen()
	complete = complete && r.whole()
	if os.Getenv("KAGAMI_CLIENTS_WRITE") != "" {
		require.True(t, complete, "the page is written of whole runs only")
		var out strings.Builder
		out.WriteString(clientsHead + clientsTable)
		for _, row := range seen {
			fmt.Fprintln(&out, row)
		}
		require.NoError(t, os.WriteFile(clientsPage, []byte(out.String()), 0o644))
		return
	}
	b, err := os.ReadFile(clientsPage)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(b), clientsHead+clientsTable), "the head of %s isn't that of this test: write it with KAGAMI_CLIENTS_WRITE=1", clientsPage)
	require.Empty(t, differences(parseClients(string(b)), seen, complete), "%s: write it with KAGAMI_CLIENTS_WRITE=1", clientsPage)
}

// TestClientReport: a page that says other than the run is found, whichever is wrong.
func TestClientReport(t *testing.T) {
	rows := []clientRow{{"sarama", "v1", "produce", "works"}, {"kcat", "1.7.1", "group", "works"}, {"kcat", "1.7.1", "admin", "not offered"}}
	var page strings.Builder
	page.WriteString(clientsHead + clientsTable)
	for _, r := range rows {
		fmt.Fprintln(&page, r)
	}
	parsed := parseClients(page.String())
	require.Equal(t, rows, parsed)
	require.Empty(t, differences(parsed, rows, true))
	require.Empty(t, differences(parsed, rows[:1], false), "a part was run")
	require.Len(t, differences(parsed, rows[:1], true), 2)
	require.Len(t, differences(parsed, rows[:2], false), 1, "kcat's admin wasn't run")
	newer := slices.Clone(rows)
	newer[1].version, newer[2].version = "1.8", "1.8"
	require.Empty(t, differences(parsed, newer, true), "kcat is the machine's")
	newer[0].version = "v2"
	require.Len(t, differences(parsed, newer, true), 2)
	newer[0] = clientRow{"sarama", "v1", "produce", "not offered"}
	require.Len(t, differences(parsed, newer, true), 2)
}
