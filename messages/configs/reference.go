package configs

import (
	"fmt"
	"strings"
)

// Reference is the text of docs/configuration.md.
func Reference() string {
	var b strings.Builder
	b.WriteString(`# Configuration reference

Generated from the definitions in messages/configs; a test keeps it up to date.

A node reads its own settings from a properties file. Topic, node and mirror
settings that may change at run time are set with ` + "`kafka-configs`" + ` or any Kafka
admin client, and are kept in the cluster's metadata. A value has at most
` + fmt.Sprint(valueBytesMax) + ` bytes. Keys that aren't listed are refused (in a node's file: reported and
ignored). Values of type password are never shown.
`)
	for _, part := range []struct {
		title, intro, change string
		set                  *Set
	}{
		{"Node settings", "In the node's file, or, where the column says yes, at run time for one node or for all (resource type BROKER).", "At run time", brokerSet},
		{"Topic settings", "Set on a topic (resource type TOPIC). Without that the node setting in the last column counts, then the default.", "Settable", topicSet},
		{"Mirror settings", "Set on a cluster mirror when it is created or later (resource type CLUSTER_MIRROR, 64).", "Settable", mirrorSet},
		{"Group settings", "Set on a group of the consumer protocol, which need not exist yet (resource type GROUP, 32). Without that the node setting in the last column counts.", "Settable", groupSet},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", part.title, part.intro)
		fmt.Fprintf(&b, "| Name | Type | Default | Valid | %s | Meaning |", part.change)
		if withNode := part.set == topicSet || part.set == groupSet; withNode {
			b.WriteString(" Node setting |")
		}
		b.WriteString("\n| --- | --- | --- | --- | --- | --- |")
		if withNode := part.set == topicSet || part.set == groupSet; withNode {
			b.WriteString(" --- |")
		}
		b.WriteString("\n")
		for _, name := range part.set.names {
			if d := part.set.defs[name]; !d.Internal {
				d.reference(&b, part.set == topicSet || part.set == groupSet)
			}
		}
	}
	return b.String()
}

func (d *Def) reference(b *strings.Builder, withSynonyms bool) {
	def := "none"
	switch {
	case d.Default != nil && *d.Default == "":
		def = "empty"
	case d.Default != nil:
		def = "`" + *d.Default + "`"
	}
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s | %s |", d.Name, d.Type, cell(def), cell(d.Valid()), d.Change, cell(d.Doc))
	if withSynonyms {
		var names []string
		for _, s := range d.Synonyms {
			names = append(names, "`"+s.Name+"`")
		}
		fmt.Fprintf(b, " %s |", strings.Join(names, ", "))
	}
	b.WriteString("\n")
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
