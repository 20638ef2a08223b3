// Package secretstest makes the keys of tests that encrypt secrets of the metadata log.
package secretstest

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"kagami/messages/secrets"
)

// Ring has a key for each seed, of that byte alone; the first one encrypts.
func Ring(tb testing.TB, seeds ...byte) *secrets.Ring {
	tb.Helper()
	var lines []string
	for _, s := range seeds {
		lines = append(lines, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{s}, secrets.KeyBytes)))
	}
	r, err := secrets.Parse(strings.Join(lines, "\n"))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}
