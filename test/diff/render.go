package diff

import (
	"fmt"
	"strings"
)

// head of docs/compatibility.md.
const head = `# Where Kagami answers otherwise than Apache Kafka 4.4

<!-- Made from test/diff by its test (-update). Change the table in known*.go there. -->

The same requests, good and bad, go to a real broker of Apache Kafka 4.4 and to a Kagami node, over plain connections, in
every version that both serve, and the answers are compared field by field (` + "`go test ./test/diff`" + `, part of the
ordinary tests). Names, addresses, ids and times are not compared; an error's text counts as there or not there. This is
all that differs. What isn't listed here and differs is a fault.

| Request | When | What | Kafka | Kagami | Why |
| --- | --- | --- | --- | --- | --- |
`

// render makes docs/compatibility.md. Neighbours with one reason are one line.
func render(table []known) string {
	var out strings.Builder
	out.WriteString(head)
	for i := 0; i < len(table); i++ {
		k := table[i]
		steps, paths := []string{k.step}, []string{k.path}
		for ; i+1 < len(table) && same(k, table[i+1]); i++ {
			next := table[i+1]
			if next.step != steps[len(steps)-1] {
				steps = append(steps, next.step)
			}
			if next.path != paths[len(paths)-1] {
				paths = append(paths, next.path)
			}
		}
		name := "all"
		if k.key != anyKey {
			name = apiName(k.key)
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", name, cell(steps, "any"), cell(paths, "all"), k.kafka, k.kagami, k.why)
	}
	return out.String()
}

func same(a, b known) bool {
	return a.key == b.key && a.why == b.why && a.kafka == b.kafka && a.kagami == b.kagami
}

func cell(items []string, empty string) string {
	var out []string
	for _, s := range items {
		switch s {
		case "", "*":
			out = append(out, empty)
		default:
			s = strings.TrimSuffix(strings.TrimPrefix(s, "*"), "*")
			out = append(out, strings.ReplaceAll(strings.TrimPrefix(s, "."), "|", "\\|"))
		}
	}
	return strings.Join(out, ", ")
}
