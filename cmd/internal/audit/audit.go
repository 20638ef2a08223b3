package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"kagami/internal/clock"
	"kagami/messages/batch"
	"kagami/persistence"
)

// Options of [Run].
type Options struct {
	Mirror string // required

	// Where to read: Data, the log.dirs of a node, which may be running; or a
	// running cluster.
	Data          string
	Bootstrap     string
	CommandConfig string // property file of the client, "" for none

	At     string // RFC 3339 or ms: print the state at that moment instead of the history
	Follow bool   // go on until ctx ends
	JSON   bool   // one object per line

	Out, Err io.Writer // the answer, and notes on what it can't tell
	Clock    clock.Clock
}

// UsageError is a fault of the options, in words.
type UsageError string

// Error is the fault.
func (e UsageError) Error() string { return string(e) }

// Intervals of Follow.
const (
	pollInterval  = 250 * time.Millisecond // of files
	retryInterval = time.Second            // after a cluster didn't answer
)

// Run prints a mirror's history, or with At its state at a moment. With Follow
// it returns nil when ctx ends.
func Run(ctx context.Context, o Options) error {
	at, err := o.check()
	if err != nil {
		return err
	}
	h, closing, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer closing()
	p := printer{out: o.Out, asJSON: o.JSON}
	if o.At != "" {
		rows, err := h.at(ctx, at)
		if err != nil {
			return err
		}
		o.say(h.notes())
		return p.rows(o.Mirror, at, rows)
	}
	err = h.drain(ctx, p.event)
	if o.Follow && ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = h.check()
	}
	if err != nil {
		return err
	}
	o.say(h.notes())
	if !o.Follow {
		return nil
	}
	return o.follow(ctx, h, p)
}

// check returns the moment that At names, ms.
func (o Options) check() (at int64, err error) {
	switch {
	case o.Mirror == "":
		return 0, UsageError("--mirror must be specified")
	case (o.Data == "") == (o.Bootstrap == ""):
		return 0, UsageError("exactly one of --data and --bootstrap-server must be specified")
	case o.CommandConfig != "" && o.Data != "":
		return 0, UsageError("--command-config is only valid with --bootstrap-server")
	case o.At != "" && o.Follow:
		return 0, UsageError("--at and --follow exclude each other")
	case o.At == "":
		return 0, nil
	}
	if t, err := time.Parse(time.RFC3339, o.At); err == nil {
		at = t.UnixMilli()
	} else if at, err = strconv.ParseInt(o.At, 10, 64); err != nil {
		return 0, UsageError(fmt.Sprintf("--at %s: want RFC 3339, such as %s, or milliseconds since 1970", o.At, timeText(o.Clock.Now().UnixMilli())))
	}
	if now := o.Clock.Now().UnixMilli(); at > now {
		return 0, fmt.Errorf("%w: %s is in the future, now is %s", ErrNoSuchTime, o.At, timeText(now))
	}
	return at, nil
}

func (o Options) open(ctx context.Context) (*history, func(), error) {
	if o.Data == "" {
		return openCluster(ctx, o.Bootstrap, o.CommandConfig, o.Mirror)
	}
	h, err := openFolder(ctx, o.Data, o.Mirror)
	return h, func() {}, err
}

func (o Options) say(notes []string) {
	for _, n := range notes {
		// That the terminal is gone is no fault of the history.
		_, _ = fmt.Fprintf(o.Err, "Note: %s\n", n)
	}
}

// follow goes on as records come, until ctx ends.
func (o Options) follow(ctx context.Context, h *history, p printer) error {
	waiting := false
	for ctx.Err() == nil {
		pause := pollInterval
		if o.Data == "" {
			pause = 0 // a fetch waits by itself
		}
		err := h.drain(ctx, p.event)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			waiting = false
		case o.Data != "" || final(err):
			return err
		default:
			if !waiting {
				o.say([]string{fmt.Sprintf("waiting for the cluster: %v", err)})
			}
			waiting, pause = true, retryInterval
		}
		if pause > 0 {
			_ = o.Clock.Sleep(ctx, pause) // its error is that ctx has ended
		}
	}
	return nil
}

// final errors don't pass by asking a cluster again: damage, and an output that
// is gone.
func final(err error) bool {
	return errors.Is(err, batch.ErrCorrupt) || errors.Is(err, persistence.ErrCorrupt) || errors.Is(err, errPrint)
}
