package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHeapPercent(t *testing.T) {
	for _, row := range []struct {
		name string
		live uint64
		want int
	}{
		{"nothing known", 0, percentMax},
		{"a few partitions", 12 << 20, 800},
		{"tiny", 1, percentMax},
		{"as much as the room", heapRoom, percentDefault},
		{"many partitions", 1 << 30, percentDefault},
	} {
		t.Run(row.name, func(t *testing.T) { require.Equal(t, row.want, heapPercent(row.live)) })
	}
}

func TestHeapKeeper(t *testing.T) {
	now := time.Unix(1000, 0)
	var cycles uint64
	var percents []int
	settled := 0
	k := &heapKeeper{
		read: func() (uint64, uint64) { return cycles, 12 << 20 },
		set:  func(p int) { percents = append(percents, p) }, settle: func() { settled++; cycles++ },
	}
	k.tick(now)
	cycles++ // one collection is no load
	k.tick(now)
	require.Empty(t, percents)
	cycles += 3
	k.tick(now)
	require.Equal(t, []int{800}, percents)
	now = now.Add(heapCalm - 1)
	k.tick(now)
	require.Equal(t, []int{800}, percents)
	now = now.Add(1)
	k.tick(now)
	require.Equal(t, []int{800, percentDefault}, percents)
	require.Equal(t, 1, settled)
	now = now.Add(time.Hour)
	k.tick(now) // its own collection doesn't count
	require.Len(t, percents, 2)
}
