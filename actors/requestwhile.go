package actors

import (
	"context"
	"sync"
	"time"

	"kagami/internal/clock"
)

// requestLook is how often a request that waits looks whether the node that it went to
// still has the role that it was asked in.
const requestLook = 100 * time.Millisecond

// requestWhile sends a request and ends it with the error moved when still reports
// false: whoever was asked has been succeeded. A node that is stopped or cut off keeps
// its connections, so that nobody tells that it won't answer, and the deadline would be
// waited for while its successor is there.
func requestWhile[T any](ctx context.Context, c clock.Clock, still func() bool, moved error, request func(ctx context.Context) (T, error)) (T, error) {
	ctx, end := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer end(nil)
	looking.Go(func() {
		for c.Sleep(ctx, requestLook) == nil {
			if !still() {
				end(moved)
				return
			}
		}
	})
	return request(ctx)
}
