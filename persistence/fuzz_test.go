package persistence_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages/batch"
	"kagami/persistence"
	"kagami/persistence/faultfs"
	"kagami/persistence/logtest"
)

// fuzzLog makes a log of some segments and side files, and what it holds.
func fuzzLog(t *testing.T, clean bool) (fsys *faultfs.FS, names []string, batches [][]byte, flushed int64) {
	t.Helper()
	fsys = faultfs.New()
	m, l, err := openCrash(t, fsys)
	require.NoError(t, err)
	for i := range int64(40) {
		x := logtest.Build(logtest.Spec{Base: 2 * i, Count: 2, Epoch: int32(i / 9), Time: 1000 + i, Producer: 1 + i%3, Seq: int32(i/3) * 2, Txn: true})
		if i%7 == 6 {
			x = batch.AbortMarker(1+i%3, 0, 1, 1000+i)
			batch.SetOffsetAndEpoch(x, 2*i, int32(i/9))
		}
		_, err := l.Append(x, persistence.AppendOptions{})
		require.NoError(t, err)
		batches = append(batches, x)
		if i == 25 {
			require.NoError(t, l.Flush())
			flushed = l.End()
		}
	}
	if clean {
		require.NoError(t, m.Close())
		flushed = 1 << 40
	}
	list, err := fsys.ReadDir("/data/t-0")
	require.NoError(t, err)
	for _, f := range list {
		names = append(names, "/data/t-0/"+f.Name)
	}
	return fsys.Restart(faultfs.LoseNothing, nil), names, batches, flushed
}

// FuzzStoreRecover damages the files of a log and opens it. Invariants: no
// panic; no batch with a bad CRC is served; what is served was appended, in
// order; a read either works or says corrupt; nothing flushed is lost that
// stands before the first damaged byte of a .log file.
func FuzzStoreRecover(f *testing.F) {
	f.Add([]byte{0, 0, 10, 1, 1, 1, 0, 200, 0x80, 0}, true)
	f.Add([]byte{3, 0, 0, 1, 0, 7, 1, 0, 0, 1}, false)
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, false)
	f.Fuzz(func(t *testing.T, script []byte, clean bool) {
		fsys, names, batches, flushed := fuzzLog(t, clean)
		slices.Sort(names)
		damaged := int64(1) << 40 // lowest offset that a .log file may have lost
		for ; len(script) >= 5; script = script[5:] {
			name := names[int(script[0])%len(names)]
			st, err := fsys.Stat(name)
			require.NoError(t, err)
			pos := int64(binary.BigEndian.Uint16(script[1:])) % max(st.Size, 1)
			if script[4]%4 == 0 {
				require.NoError(t, fsys.Cut(name, pos))
			} else {
				require.NoError(t, fsys.Flip(name, pos, script[3]))
			}
			if base, ok := logBase(name); ok {
				damaged = min(damaged, offsetAt(batches, base, pos))
			}
		}
		o := options(fsys)
		o.VerifyReads = true
		m, err := persistence.Open(t.Context(), "/data", o)
		require.NoError(t, err)
		l, err := m.Open(t.Context(), crashTP, crashConfig)
		require.NoError(t, err)
		checkServed(t, l, batches, min(damaged, flushed))
		_, _ = l.AbortedTxns(l.LogStart(), l.End())
		_, _, _ = l.OffsetForTimestamp(1010)
		_, _, _ = l.MaxTimestamp()
		_, _ = l.Truncate((l.LogStart() + l.End()) / 2)
		_, _ = l.Append(logtest.Build(logtest.Spec{Base: l.End() + 1, Count: 1}), persistence.AppendOptions{})
		_ = m.Close()
	})
}

func checkServed(t *testing.T, l persistence.Log, batches [][]byte, must int64) {
	t.Helper()
	next := l.LogStart()
	for next < l.End() {
		c, err := l.Read(next, 1, l.End(), true)
		if err != nil {
			require.ErrorIs(t, err, persistence.ErrCorrupt)
			break
		}
		if c.Len == 0 {
			break
		}
		require.NoError(t, batch.CheckCRC(c.Bytes))
		require.True(t, wasAppended(batches, c.Bytes), "batch at %d is none that was appended", c.FirstOffset)
		require.GreaterOrEqual(t, c.FirstOffset, next-1)
		next = c.NextOffset
	}
	want := int64(0)
	for _, b := range batches {
		if h, _ := batch.ParseHeader(b); h.LastOffset() < must {
			want = h.LastOffset() + 1
		}
	}
	require.GreaterOrEqual(t, next, want, "flushed data before the damage")
}

// wasAppended compares all but offset and epoch, which no checksum covers.
func wasAppended(batches [][]byte, got []byte) bool {
	for _, b := range batches {
		if bytes.Equal(b[16:], got[16:]) {
			return true
		}
	}
	return false
}

func logBase(name string) (int64, bool) {
	var base int64
	if len(name) < 4 || name[len(name)-4:] != ".log" {
		return 0, false
	}
	for _, c := range name[len(name)-24 : len(name)-4] {
		base = base*10 + int64(c-'0')
	}
	return base, true
}

// offsetAt is the first offset of the batch at a byte of the segment at base.
func offsetAt(batches [][]byte, base, pos int64) int64 {
	at := int64(0)
	for _, b := range batches {
		h, _ := batch.ParseHeader(b)
		if h.BaseOffset < base {
			continue
		}
		if at += int64(len(b)); pos < at {
			return h.BaseOffset
		}
	}
	return 1 << 40
}

// FuzzRecordBatch appends arbitrary bytes. Invariants: no panic; both
// implementations agree; what is taken is read back unchanged, and survives.
func FuzzRecordBatch(f *testing.F) {
	f.Add(logtest.Build(logtest.Spec{Count: 3, Producer: 5, Txn: true}))
	f.Add(append(batch.MirrorPIDReset(1, 2, "x"), logtest.Build(logtest.Spec{Base: 1, Count: 1})...))
	f.Add(batch.AbortMarker(5, 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := faultfs.New()
		_, l, err := openCrash(t, fsys)
		require.NoError(t, err)
		twin := persistence.NewMemoryLog(persistence.Info{}, crashConfig)
		_, err = twin.Append(b, persistence.AppendOptions{CheckCRC: true})
		_, got := l.Append(b, persistence.AppendOptions{CheckCRC: true})
		require.Equal(t, err == nil, got == nil, "%v and %v", err, got)
		if err != nil {
			require.EqualValues(t, 0, l.End())
			return
		}
		require.Equal(t, twin.End(), l.End())
		if l.End() > 1<<31 {
			return
		}
		_, l, err = openCrash(t, fsys.Restart(faultfs.LoseNothing, nil))
		require.NoError(t, err)
		require.Equal(t, b, append([]byte{}, logtest.Contents(t, l, 1<<20)...))
	})
}
