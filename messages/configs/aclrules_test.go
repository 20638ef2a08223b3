package configs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
)

func TestACLRules(t *testing.T) {
	entry := messages.ACL{
		Type: messages.ACLTopic, Pattern: messages.ACLPrefixed, Name: "orders-eu", Principal: "User:alice", Host: "10.0.0.5",
		Operation: messages.ACLRead, Permission: messages.ACLAllow,
	}
	for rules, want := range map[string]bool{
		"":                                   false,
		"*":                                  true,
		"*;*;*;*;*":                          true,
		"TOPIC":                              true,
		"group":                              false,
		"topic; orders-.*":                   true,
		"TOPIC;orders":                       false, // the whole name
		"TOPIC;orders-.*;WRITE":              false,
		"TOPIC;orders-.*;read;DENY":          false,
		"TOPIC;orders-.*;read;allow;User:a":  false,
		"*;*;READ;ALLOW;User:(alice|bob)":    true,
		"GROUP, TOPIC;x, *;*;*;*;User:alice": true,
		"CLUSTER,USER,TRANSACTIONAL_ID":      false,
	} {
		r, err := CompileACLRules(messages.ParseList(rules))
		require.NoError(t, err, rules)
		require.Equal(t, want, r.Match(entry), rules)
		require.Equal(t, rules == "", r.Empty())
	}
	for _, bad := range []string{"CLUSTER_MIRROR", "ANY", "TOPIC;(", "TOPIC;*;ANY", "TOPIC;*;*;ANY", "TOPIC;*;*;*;(", ";", "TOPIC;"} {
		_, err := CompileACLRules([]string{bad})
		require.ErrorContains(t, err, "has the rule", bad)
	}
}
