//go:build faultpoints && unix

package invariant

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestPointTable(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list")
	for _, row := range []struct {
		name, point string
		want        []bool // reaching a, b, a, a
	}{
		{"none", "", []bool{false, false, false, false}},
		{"first", "a", []bool{true, false, false, false}},
		{"second", "a:2", []bool{false, false, true, false}},
		{"never", "c", []bool{false, false, false, false}},
	} {
		t.Run(row.name, func(t *testing.T) {
			table := newPointTable(row.point, list)
			for i, name := range []string{"a", "b", "a", "a"} {
				if got := table.ends(name, table.note(name)); got != row.want[i] {
					t.Errorf("step %d: %v, want %v", i, got, row.want[i])
				}
			}
		})
	}
	b, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if want := "a:1\nb:1\na:2\na:3\n"; string(b) != want+want+want+want {
		t.Errorf("listed %q", b)
	}
}

// TestHold: a point waits for a writer of its pipe, and for nothing without one.
func TestHold(t *testing.T) {
	table := newPointTable("", "")
	table.fifo = filepath.Join(t.TempDir(), "fifo")
	table.wait()
	if err := syscall.Mkfifo(table.fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	passed := make(chan struct{})
	go func() { table.wait(); close(passed) }()
	w, err := os.OpenFile(table.fifo, os.O_WRONLY, 0) // returns when someone waits
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-passed:
		t.Error("it didn't wait")
	default:
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	<-passed
}
