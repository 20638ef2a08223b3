package metadata

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"kagami/messages"
)

var update = flag.Bool("update", false, "rewrite golden files")

// goldenImage has something of everything.
func goldenImage(t *testing.T) *Image {
	t.Helper()
	records := topicRecords("orders", 7, 2)
	value := "m.paused"
	records = append(records, bump(7, 1, 4), ConfigRecord(messages.ResourceTopic, "orders", "mirror.name", &value), claim(1, 3),
		NodeRecord(messages.Node{ID: 1, Rack: "r", Endpoints: []messages.Endpoint{{Listener: "PLAINTEXT", Protocol: "PLAINTEXT", Host: "h", Port: 9094}}}))
	bootstrap := "h:9092"
	records = append(records, ConfigRecord(messages.ResourceClusterMirror, "m", "bootstrap.servers", &bootstrap),
		ConfigRecord(messages.ResourceBroker, "", "log.retention.ms", &bootstrap))
	d, err := EmptyImage().Apply(100, records)
	if err != nil {
		t.Fatal(err)
	}
	return d.New
}

// TestGoldenBytes: the stored form of a change and of a snapshot stays readable.
func TestGoldenBytes(t *testing.T) {
	change, err := appendBatch(nil, Change{
		Records: append(topicRecords("orders", 7, 1), bump(7, 0, 4)), Claim: 3,
		Requester: messages.Requester{Principal: "User:a", ClientID: "c", Host: "1.2.3.4", RequestID: "r"},
	}, 1700000000000)
	if err != nil {
		t.Fatal(err)
	}
	var snapshot bytes.Buffer
	if err := encodeSnapshot(&snapshot, goldenImage(t), 3, 1700000000000); err != nil {
		t.Fatal(err)
	}
	for name, have := range map[string][]byte{"testdata/change.hex": change, "testdata/snapshot.hex": snapshot.Bytes()} {
		text := hex.EncodeToString(have) + "\n"
		if *update {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("%s differs", name)
		}
	}
	e, err := ReadChange(change)
	if err != nil || len(e.Records) != 3 || e.Claim != 3 || e.Requester.Principal != "User:a" || e.Requester.RequestID != "r" || e.Requester.Host != "1.2.3.4" {
		t.Fatalf("%+v, %v", e, err)
	}
}

func TestNewerRecordsAreRefused(t *testing.T) {
	for name, value := range map[string][]byte{
		"frame version":  {2, 2, 0, 0},
		"record type":    {1, 250, 1, 0, 0},
		"record version": {1, 9, 1, 0, 0},
	} {
		p := newFakePartition()
		b := appendRawBatch(nil, rawBatch{millis: 1, values: [][]byte{value}})
		if _, err := p.AppendInternal(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), Options{Journal: p, Source: p, Dir: t.TempDir(), Now: func() int64 { return 0 }})
		if !errors.Is(err, ErrUnknownRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzReadChange: any bytes give an error or records, never a panic, and what is
// read is written back alike.
func FuzzReadChange(f *testing.F) {
	for _, name := range []string{"testdata/change.hex", "testdata/snapshot.hex"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		b, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ReadChange(b)
		if err != nil || len(c.Records) == 0 {
			return
		}
		again, err := appendBatch(nil, c, 0)
		if err != nil {
			t.Fatal(err)
		}
		c2, err := ReadChange(again)
		if err != nil || len(c2.Records) != len(c.Records) || c2.Requester != c.Requester {
			t.Fatalf("%+v became %+v, %v", c, c2, err)
		}
	})
}
