package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// The committed files are what the generator writes today.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	want, err := generate(filepath.Join("..", "schema"))
	require.NoError(t, err)
	have, err := filepath.Glob(filepath.Join("..", "zz_generated_*.go"))
	require.NoError(t, err)
	for _, name := range have {
		if want[filepath.Base(name)] == nil {
			t.Errorf("%s has no schema: run go generate ./messages/wire", name)
		}
	}
	for base, src := range want {
		got, err := os.ReadFile(filepath.Join("..", base))
		require.NoError(t, err, "run go generate ./messages/wire")
		if diff := cmp.Diff(string(src), string(got)); diff != "" {
			t.Errorf("%s differs (-generated +committed); run go generate ./messages/wire\n%.2000s", base, diff)
		}
	}
}

func TestParseSchemaRefuses(t *testing.T) {
	schema := func(field string) string {
		return `{"type":"data","name":"X","validVersions":"0-1","flexibleVersions":"1+","fields":[` + field + `]}`
	}
	for name, tc := range map[string]struct{ schema, want string }{
		"unknown attribute": {`{"typo":1}`, "typo"},
		"unknown kind":      {`{"type":"queue","name":"X"}`, "queue"},
		"open versions":     {`{"type":"data","name":"X","validVersions":"0+"}`, "closed range"},
		"no api key":        {`{"type":"request","name":"X","validVersions":"0"}`, "apiKey"},
		"unknown type":      {schema(`{"name":"A","type":"float128","versions":"0+"}`), "float128"},
		"tag without range": {schema(`{"name":"A","type":"int8","versions":"0+","tag":1}`), "go together"},
		"tag twice": {schema(`{"name":"A","type":"int8","versions":"1+","tag":1,"taggedVersions":"1+"},
			{"name":"B","type":"int8","versions":"1+","tag":1,"taggedVersions":"1+"}`), "twice"},
		"half tagged":     {schema(`{"name":"A","type":"int8","versions":"0+","tag":1,"taggedVersions":"1+"}`), "in all its versions"},
		"default too big": {schema(`{"name":"A","type":"int8","versions":"0+","default":"300"}`), "default"},
		"nullable struct": {schema(`{"name":"A","type":"T","versions":"0+","nullableVersions":"9+","fields":[{"name":"B","type":"int8","versions":"0+"}]}`), "nullable in some versions"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseSchema([]byte(tc.schema))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// Everything the generator promises to handle, in one schema: it must give
// code that formats, with conditions where versions differ.
func TestEmitMixedVersions(t *testing.T) {
	m, err := parseSchema([]byte(`{
		// a comment
		"apiKey": 7, "type": "metadata", "name": "MixRecord", "validVersions": "0-3", "flexibleVersions": "2+",
		"commonStructs": [{"name": "Shared", "versions": "0+", "fields": [{"name": "Port", "type": "uint16", "versions": "0+"}]}],
		"fields": [
		{"name": "Flag", "type": "bool", "versions": "0+", "default": "true"},
		{"name": "Ids", "type": "[]int32", "versions": "1+", "nullableVersions": "2+"},
		{"name": "Old", "type": "int64", "versions": "0-1", "default": "-1"},
		{"name": "Mid", "type": "int16", "versions": "1-2"},
		{"name": "Blob", "type": "bytes", "versions": "0+", "nullableVersions": "0+", "default": "null"},
		{"name": "One", "type": "Shared", "versions": "0+"},
		{"name": "Many", "type": "[]Shared", "versions": "3+", "tag": 0, "taggedVersions": "3+"}
	]}`))
	require.NoError(t, err)
	src, err := emitMessage(m)
	require.NoError(t, err)
	for _, want := range []string{
		"IDs []int32", "if v >= 1 {", "if v <= 1 {", "if v >= 1 && v <= 2 {", "if v >= 3 {",
		"type MixRecordShared struct", "m.IDs == nil && v >= 2, v >= 2", "m.Flag = true",
	} {
		if !strings.Contains(string(src), want) {
			t.Errorf("no %q in\n%s", want, src)
		}
	}
}
