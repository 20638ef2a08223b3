package main

import (
	"archive/zip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/test/kafka"
)

// Metadata records with a number of KRaft's are KRaft's: same name, and every
// field that both have is the same on the wire. Ours may know newer versions and
// leave out older ones.
func TestMetadataSchemasAsKafkas(t *testing.T) {
	kafka.Require(t, kafka.Latest)
	theirs := kafkaSchemas(t, "kafka-metadata-", "common/metadata/*Record.json")
	ours, err := loadSchemas(filepath.Join("..", "schema"))
	require.NoError(t, err)
	compared := 0
	for _, m := range ours {
		if m.Type != "metadata" || *m.APIKey >= 200 { // from 200 up they are our own
			continue
		}
		k := theirs[*m.APIKey]
		require.NotNil(t, k, "%s: Kafka has no record %d", m.Name, *m.APIKey)
		require.Equal(t, k.Name, m.Name)
		compared++
		compareFields(t, m.Name, k.Fields, m.Fields)
	}
	require.Positive(t, compared)
}

func compareFields(t *testing.T, where string, theirs, ours []*field) {
	t.Helper()
	byName := map[string]*field{}
	for _, f := range theirs {
		byName[f.Name] = f
	}
	for _, f := range ours {
		k := byName[f.Name]
		if k == nil {
			t.Logf("%s.%s is ours alone (versions %s, tag %v)", where, f.Name, f.Versions, f.Tag)
			continue
		}
		for _, c := range []struct{ what, theirs, ours string }{
			{"type", k.Type, f.Type},
			{"versions", k.Versions, f.Versions},
			{"nullable versions", k.NullableVersions, f.NullableVersions},
			{"tagged versions", k.TaggedVersions, f.TaggedVersions},
			{"default", k.def, f.def},
		} {
			if c.theirs != c.ours {
				t.Errorf("%s.%s: %s is %q in Kafka, %q here", where, f.Name, c.what, c.theirs, c.ours)
			}
		}
		if (k.Tag == nil) != (f.Tag == nil) || k.Tag != nil && *k.Tag != *f.Tag {
			t.Errorf("%s.%s: the tag differs", where, f.Name)
		}
		compareFields(t, where+"."+f.Name, k.Fields, f.Fields)
	}
}

// kafkaSchemas reads the record schemas out of Kafka's jars, by record type.
func kafkaSchemas(t *testing.T, jarName, files string) map[int]*message {
	t.Helper()
	cp, err := kafka.ClassPath(t.Context(), kafka.Latest)
	require.NoError(t, err)
	out := map[int]*message{}
	for _, jar := range filepath.SplitList(cp) {
		if !strings.HasPrefix(filepath.Base(jar), jarName) {
			continue
		}
		z, err := zip.OpenReader(jar)
		require.NoError(t, err)
		for _, f := range z.File {
			if ok, _ := filepath.Match(files, f.Name); !ok {
				continue
			}
			r, err := f.Open()
			require.NoError(t, err)
			raw, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, r.Close())
			m, err := parseSchema(raw)
			if err != nil {
				t.Logf("%s: not understood here: %v", f.Name, err)
				continue
			}
			out[*m.APIKey] = m
		}
		require.NoError(t, z.Close())
	}
	require.NotEmpty(t, out)
	return out
}

// TestGroupSchemasAsKafkas: the records of __consumer_offsets that have schemas here
// are Kafka's.
func TestGroupSchemasAsKafkas(t *testing.T) {
	kafka.Require(t, kafka.Latest)
	ours, err := loadSchemas(filepath.Join("..", "schema"))
	require.NoError(t, err)
	compared := 0
	for _, kind := range []string{"Key", "Value"} {
		theirs := kafkaSchemas(t, "kafka-group-coordinator-4", "common/message/ConsumerGroup*"+kind+".json")
		for _, m := range ours {
			if !strings.HasPrefix(m.Name, "ConsumerGroup") || m.Type != "coordinator-"+strings.ToLower(kind) {
				continue
			}
			k := theirs[*m.APIKey]
			require.NotNil(t, k, "%s: Kafka has no record %d", m.Name, *m.APIKey)
			require.Equal(t, k.Name, m.Name)
			require.Len(t, m.Fields, len(k.Fields), m.Name)
			compared++
			compareFields(t, m.Name, k.Fields, m.Fields)
		}
	}
	require.Equal(t, 13, compared)
}

// run writes what generate returns, and removes files without a schema.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "schema"), 0o750))
	schema := `{"type":"data","name":"Thing","validVersions":"0","flexibleVersions":"0+","fields":[{"name":"A","type":"int8","versions":"0+"}]}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "schema", "thing.json"), []byte(schema), 0o600))
	stale := filepath.Join(dir, "zz_generated_gone.go")
	require.NoError(t, os.WriteFile(stale, nil, 0o600))
	require.NoError(t, run(dir))
	require.NoError(t, run(dir), "again")
	require.FileExists(t, filepath.Join(dir, "zz_generated_thing.go"))
	_, err := os.Stat(stale)
	require.True(t, errors.Is(err, fs.ErrNotExist))
}
