package actors

import (
	"context"
	"fmt"
	"testing"
	"time"

	"kagami/messages"
	"kagami/persistence/faultfs"
)

// TestControllerClaimsAboveTaken: a node that claimed the metadata log and died, or was
// cut off, before it wrote its record leaves an epoch behind that the image doesn't
// show. The next one claims above it, and doesn't try the same again and again.
func TestControllerClaimsAboveTaken(t *testing.T) {
	fsys := faultfs.New()
	if err := fsys.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	const taken = 3
	tries := 0
	n := &controllerNode{claim: func(claim func(context.Context, int32) error) func(context.Context, int32) error {
		return func(ctx context.Context, epoch int32) error {
			if tries++; epoch <= taken {
				return fmt.Errorf("epoch %d: %w", epoch, messages.ErrFencedLeaderEpoch)
			}
			return claim(ctx, epoch)
		}
	}}
	defer n.shut()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := n.open(ctx, fsys); err != nil {
		t.Fatal(err)
	}
	if epoch := n.store.Image().ControllerEpoch(); epoch != taken+1 || tries != taken+1 {
		t.Errorf("claim %d after %d tries, want %d of each", epoch, tries, taken+1)
	}
}
