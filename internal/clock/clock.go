// Package clock is the only place that asks for the time. Its main types are
// [Clock], which the rest of the module takes as an argument, and [Wall], the
// real one. Tests run under testing/synctest or bring a clock of their own. The
// package owns no state and starts no goroutine of its own.
package clock

import (
	"context"
	"time"
)

// Clock tells the time and wakes up later.
type Clock interface {
	// Now is the current time.
	Now() time.Time
	// AfterFunc calls f once in its own goroutine after d, unless stop is called
	// first; stop reports whether it prevented the call.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
	// Sleep waits for d or until ctx ends; then it returns ctx's cause.
	Sleep(ctx context.Context, d time.Duration) error
}

// Wall is the clock of the machine.
type Wall struct{}

// Now is time.Now.
func (Wall) Now() time.Time { return time.Now() }

// AfterFunc is time.AfterFunc.
func (Wall) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// Sleep waits on a timer and on ctx.
func (Wall) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
