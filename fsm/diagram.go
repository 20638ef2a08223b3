package fsm

import (
	"fmt"
	"strings"
)

// Mermaid is the table as a Mermaid state diagram: one arrow per row and source,
// with the row's number, events and guard. testdata/states.mmd is its output.
func Mermaid() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    [*] --> UNKNOWN\n")
	for i := range rows {
		r := &rows[i]
		for _, from := range r.From {
			fmt.Fprintf(&b, "    %s --> %s: %s\n", from, r.To, label(r))
		}
	}
	return b.String()
}

func label(r *Row) string {
	names := make([]string, len(r.On))
	for i, e := range r.On {
		names[i] = e.String()
	}
	out := "(" + r.Number + ") " + strings.Join(names, " / ")
	if r.If.Name != "" {
		out += " [" + r.If.Name + "]"
	}
	return out
}

// Markdown is the table with effects and reasons, for the docs.
// testdata/table.md is its output.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| # | From | Event | Guard | To | Stored | Before | After | Why |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.Number, list(r.From), list(r.On), r.If.Name,
			r.To, r.Persist, list(r.Before), list(r.Then), r.Why)
	}
	return b.String()
}

func list[T fmt.Stringer](items []T) string {
	out := make([]string, len(items))
	for i, v := range items {
		out[i] = v.String()
	}
	return strings.Join(out, ", ")
}
