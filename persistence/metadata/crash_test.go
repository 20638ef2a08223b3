package metadata

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"kagami/persistence"
	"kagami/persistence/faultfs"
)

// TestStoreSnapshotCrashes cuts the power, or kills the process, at every single
// effect of writing snapshots: the image that comes back is always that of the
// log, whatever is left of the files.
func TestStoreSnapshotCrashes(t *testing.T) {
	for _, loss := range []faultfs.Loss{faultfs.LoseNothing, faultfs.LoseUnsynced, faultfs.LoseSome} {
		for crashAt := 1; ; crashAt++ {
			fsys := faultfs.New()
			if err := errors.Join(fsys.MkdirAll("/d"), fsys.SyncDir("/")); err != nil {
				t.Fatal(err)
			}
			base := fsys.Effects()
			fsys.CrashAt = base + crashAt
			p := newFakePartition()
			var want []byte
			for round := range 4 {
				s, err := Open(t.Context(), Options{Journal: p, Source: p, Dir: "/d", FS: fsys, SnapshotRecords: 5, Now: func() int64 { return 1 }})
				if err != nil {
					if !fsys.Crashed() {
						t.Fatalf("open: %v", err)
					}
					break
				}
				mustAppend(t, s, append(topicRecords(string(rune('a'+round)), byte(round+1), 5), topicConfig(string(rune('a'+round)), "k", "v"))...)
				want = dump(t, s.Image())
				s.Close()
			}
			done := !fsys.Crashed()
			after := fsys.Restart(loss, rand.New(rand.NewPCG(uint64(crashAt), 1)))
			s := openStore(t, p, func(o *Options) { o.FS, o.Dir = after, "/d" })
			if !bytes.Equal(dump(t, s.Image()), want) {
				t.Fatalf("loss %v, crash at effect %d: another image", loss, crashAt)
			}
			s.Close()
			if done {
				if crashAt < 10 || p.LogStart() == 0 {
					t.Fatalf("only %d effects, log start %d: nothing was tested", crashAt, p.LogStart())
				}
				break
			}
		}
	}
}

// FuzzSnapshot: a damaged file gives an error that the loader knows, never a
// panic and never half an image.
func FuzzSnapshot(f *testing.F) {
	var good bytes.Buffer
	img, err := EmptyImage().Apply(0, append(topicRecords("a", 1, 3), claim(1, 1)))
	if err != nil {
		f.Fatal(err)
	}
	if err := encodeSnapshot(&good, img.New, 1, 1); err != nil {
		f.Fatal(err)
	}
	f.Add(uint16(0), byte(0), uint16(0))
	f.Add(uint16(100), byte(4), uint16(9))
	f.Fuzz(func(t *testing.T, pos uint16, mask byte, cut uint16) {
		b := bytes.Clone(good.Bytes())
		if int(pos) < len(b) {
			b[pos] ^= mask
		}
		b = b[:max(0, len(b)-int(cut))]
		fsys := faultfs.New()
		name := "/d/" + snapshotName(5, 1)
		if err := fsys.MkdirAll("/d"); err != nil {
			t.Fatal(err)
		}
		fl, err := fsys.OpenFile(name, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fl.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		got, err := readSnapshotFile(fsys, name)
		switch {
		case err != nil && !errors.Is(err, persistence.ErrCorrupt) && !errors.Is(err, ErrBadRecord):
			t.Fatal(err)
		case err == nil && len(got.Topics()) != 1:
			t.Fatal("half an image")
		}
	})
}
