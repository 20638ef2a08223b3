package fetch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWindow(t *testing.T) {
	const base, limit = 1 << 20, 32 << 20
	far, near := 100*time.Millisecond, time.Millisecond
	w := window{limit: limit, stretch: 1}
	require.EqualValues(t, base, w.size(base))
	w.answered(true, near, 2*near)
	require.EqualValues(t, base, w.size(base), "a source that is near")
	for range 4 {
		w.answered(true, far, far+10*time.Millisecond)
	}
	require.EqualValues(t, 16*base, w.size(base), "most of the time is spent waiting")
	w.answered(true, far, farShare*far)
	require.EqualValues(t, 16*base, w.size(base), "the way is filled")
	for range 40 {
		w.answered(true, far, 2*far)
	}
	require.EqualValues(t, limit, w.size(base), "never above the limit")
	require.EqualValues(t, 2*limit, w.size(2*limit), "nor below what is asked for")
	for range 40 {
		w.answered(false, far, far)
	}
	require.EqualValues(t, base, w.size(base), "small answers need no room")

	off := window{stretch: 1}
	off.answered(true, far, far)
	require.EqualValues(t, base, off.size(base), "switched off")
}
