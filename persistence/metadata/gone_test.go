package metadata

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/wire"
)

// A node that was taken out is remembered, in snapshots too, until it registers again.
func TestNodesThatAreGone(t *testing.T) {
	out := wire.NewPtrUnregisterNodeRecord()
	out.NodeID = 4
	apply := func(img *Image, records ...Record) *Image {
		t.Helper()
		d, err := img.Apply(img.Offset()+1, records)
		require.NoError(t, err)
		return d.New
	}
	before := apply(EmptyImage(), NodeRecord(messages.Node{ID: 1}), NodeRecord(messages.Node{ID: 4}))
	require.Empty(t, before.Gone())
	img := apply(before, out, out)
	require.Empty(t, before.Gone())
	require.Equal(t, []messages.NodeID{4}, img.Gone())
	require.Nil(t, img.Node(4))
	var records []Record
	img.records(func(r Record) { records = append(records, r) })
	require.Equal(t, []messages.NodeID{4}, apply(EmptyImage(), records...).Gone())
	require.Empty(t, apply(img, NodeRecord(messages.Node{ID: 4})).Gone())
	require.Equal(t, []messages.NodeID{4}, img.Gone())
}
