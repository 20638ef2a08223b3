// Package leak looks for secrets in whatever a program has written: logs, answers, files.
// A [Hunter] knows each secret in every form that it could show in; it only reads.
package leak

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
)

// bytesMin is how long a secret must be: a shorter one would be found by chance.
const bytesMin = 10

// Hunter looks for secrets.
type Hunter struct{ forms map[string][]byte }

// New makes one for secrets, by what they are called in a finding.
func New(tb testing.TB, secrets map[string]string) *Hunter {
	tb.Helper()
	h := &Hunter{forms: make(map[string][]byte)}
	for name, secret := range secrets {
		if len(secret) < bytesMin {
			tb.Fatalf("the secret %s is too short to be looked for", name)
		}
		for form, b := range forms(secret) {
			h.forms[name+", "+form] = b
		}
	}
	return h
}

// forms is a secret as logs, protocols and files may have it.
func forms(secret string) map[string][]byte {
	out := map[string][]byte{
		"as it is": []byte(secret), "hex": []byte(hex.EncodeToString([]byte(secret))), "HEX": []byte(strings.ToUpper(hex.EncodeToString([]byte(secret)))),
		"URL": []byte(url.QueryEscape(secret)), "URL path": []byte(url.PathEscape(secret)), "Go": []byte(strings.Trim(strconv.Quote(secret), `"`)),
		"HTML": []byte(html.EscapeString(secret)), "a list of bytes": []byte(strings.Trim(fmt.Sprintf("%d", []byte(secret)), "[]")),
		"a list of bytes, Go": []byte(strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", []byte(secret)), "[]byte{"), "}")),
		"properties":          []byte(strings.NewReplacer(`\`, `\\`, "=", `\=`, ":", `\:`).Replace(secret)),
	}
	if b, err := json.Marshal(secret); err == nil {
		out["JSON"] = bytes.Trim(b, `"`)
	}
	for shift := range 3 { // base64 of something that the secret is a part of
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			text := enc.EncodeToString(append(make([]byte, shift), secret...))
			begin := []int{0, 2, 3}[shift] // characters that hold bits of what is in front
			end := len(text)
			if (shift+len(secret))%3 != 0 {
				end-- // and of what is behind
			}
			out[fmt.Sprint(name, " from ", shift)] = []byte(text[begin:end])
		}
	}
	var le, be []byte
	for _, u := range utf16.Encode([]rune(secret)) {
		le, be = binary.LittleEndian.AppendUint16(le, u), binary.BigEndian.AppendUint16(be, u)
	}
	out["UTF-16LE"], out["UTF-16BE"] = le, be
	return out
}

// Find names the secrets that are in b, in order.
func (h *Hunter) Find(b []byte) []string {
	var out []string
	for name, form := range h.forms {
		if bytes.Contains(b, form) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Folder names the secrets in the files below dir, their names too, by file. A file that
// goes meanwhile is passed over.
func (h *Hunter) Folder(tb testing.TB, dir string) map[string][]string {
	tb.Helper()
	out := make(map[string][]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // gone meanwhile
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		if found := append(h.Find(b), h.Find([]byte(path))...); len(found) > 0 {
			out[path] = found
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// Describe is what Folder found, in order.
func Describe(found map[string][]string) string {
	var out strings.Builder
	for _, path := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&out, "%s: %s\n", path, strings.Join(found[path], "; "))
	}
	return out.String()
}
