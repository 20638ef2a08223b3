package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/client"
	"kagami/cmd/internal/tool"
	"kagami/messages"
)

// TestACLTool is cli.md, "kafka-acls.sh".
func TestACLTool(t *testing.T) {
	n := rightsNode(t, t.TempDir())
	login := writeFile(t, filepath.Join(t.TempDir(), "admin.properties"), `security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-4711";
`)
	run := func(args string) (out, errs string, code int) {
		var o, e bytes.Buffer
		code = tool.ACLs(t.Context(), append([]string{"--bootstrap-server", n.at("SASL_PLAINTEXT"), "--command-config", login}, strings.Fields(args)...), tool.Streams{Out: &o, Err: &e})
		return o.String(), e.String(), code
	}
	says := func(args, want string) {
		t.Helper()
		out, errs, code := run(args)
		require.Zero(t, code, errs)
		require.Equal(t, want, out)
	}
	const lines = `      (principal=User:mirror-admin, host=*, operation=ALTER, permissionType=ALLOW)
      (principal=User:mirror-admin, host=*, operation=ALTER_CONFIGS, permissionType=ALLOW)
`
	says("--add --cluster-mirror my-mirror --operation Alter --operation AlterConfigs --allow-principal User:mirror-admin",
		"Adding ACLs for resource `ResourcePattern(resourceType=CLUSTER_MIRROR, name=my-mirror, patternType=LITERAL)`:\n"+lines)
	says("--list --cluster-mirror my-mirror", "Current ACLs for resource `ResourcePattern(resourceType=CLUSTER_MIRROR, name=my-mirror, patternType=LITERAL)`:\n"+lines)
	says("--add --cluster-mirror * --operation Describe --allow-principal User:monitor",
		"Adding ACLs for resource `ResourcePattern(resourceType=CLUSTER_MIRROR, name=*, patternType=LITERAL)`:\n      (principal=User:monitor, host=*, operation=DESCRIBE, permissionType=ALLOW)\n")
	says("--add --topic t --resource-pattern-type prefixed --operation read --deny-principal User:x --deny-host 10.0.0.1",
		"Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=PREFIXED)`:\n      (principal=User:x, host=10.0.0.1, operation=READ, permissionType=DENY)\n")
	out, _, code := run("--list")
	require.Zero(t, code)
	for _, want := range []string{"TOPIC, name=t, patternType=PREFIXED", "CLUSTER_MIRROR, name=my-mirror", "CLUSTER_MIRROR, name=*"} {
		require.Contains(t, out, want)
	}
	says("--list --principal User:x", "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=t, patternType=PREFIXED)`:\n      (principal=User:x, host=10.0.0.1, operation=READ, permissionType=DENY)\n")
	out, _, code = run("--remove --cluster-mirror my-mirror")
	require.Zero(t, code)
	require.Equal(t, 2, strings.Count(out, "Removed ACLs"))
	says("--list --cluster-mirror my-mirror", "")
	for args, want := range map[string]string{
		"--add --cluster-mirror m --operation Read --allow-principal User:a":                   "only supports operations",
		"--add --cluster-mirror m --operation Alter":                                           "--allow-principal",
		"--add --operation Alter --allow-principal User:a":                                     "at least one resource",
		"--add --list --topic t":                                                               "exactly one action",
		"--add --topic t --operation Fly --allow-principal User:a":                             "Fly",
		"--add --topic t --resource-pattern-type match --operation Read --allow-principal U:a": "not valid when adding",
		"--add --topic t --operation Read --allow-principal nobody":                            "principal",
	} {
		_, errs, code := run(args)
		require.Equal(t, 1, code, args)
		require.Contains(t, errs, want, args)
	}
}

// TestAuditNeedsRead: who may not read the states of mirrors is told which right that takes.
func TestAuditNeedsRead(t *testing.T) {
	n := rightsNode(t, t.TempDir())
	admin := n.as(t, "admin")
	adm := client.Wrap(admin)
	require.NoError(t, adm.CreateClusterMirror(t.Context(), "m", map[string]*string{"bootstrap.servers": new("127.0.0.1:1")}))
	login := writeFile(t, filepath.Join(t.TempDir(), "app.properties"), `security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="bob" password="bob-4711";
`)
	says := func(code int, text string) {
		t.Helper()
		await(t, "the audit says "+text, func() error {
			got, _, errs := runs(t, "audit", "--mirror", "m", "--bootstrap-server", n.at("SASL_PLAINTEXT"), "--command-config", login)
			if got != code || !strings.Contains(errs, text) {
				return fmt.Errorf("exit code %d: %s", got, errs)
			}
			return nil
		})
	}
	says(exitFailed, "READ on the topic __mirror_state is needed")
	give(t, admin, right("bob", messages.ACLTopic, messages.MirrorStateTopic, messages.ACLDescribe))
	says(exitFailed, "READ on the topic __mirror_state is needed")
	give(t, admin, right("bob", messages.ACLTopic, messages.MirrorStateTopic, messages.ACLRead), right("bob", messages.ACLClusterMirror, "m", messages.ACLDescribe))
	says(exitOK, "")
}
