package actors

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"kagami/internal/clock"
)

func TestRestartDelay(t *testing.T) {
	for _, tc := range []struct {
		name     string
		failures int
		want     time.Duration
	}{
		{name: "first", failures: 1, want: 100 * time.Millisecond},
		{name: "fourth", failures: 4, want: 800 * time.Millisecond},
		{name: "capped", failures: 12, want: 30 * time.Second},
		{name: "never overflows", failures: 1000, want: 30 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := restartDelay(tc.failures); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestPanicIsLoggedAndRestarted: more panics than protoactor's own limit of ten
// in ten seconds, and the actor is still there.
func TestPanicIsLoggedAndRestarted(t *testing.T) {
	core, logs := observer.New(zap.ErrorLevel)
	synctest.Test(t, func(t *testing.T) {
		system := NewSystem(zap.New(core))
		starts := 0
		receive := func(c actor.Context) {
			switch c.Message().(type) {
			case *actor.Started:
				starts++
			case string:
				panic("boom")
			case int:
				c.Respond(starts)
			}
		}
		child := props(clock.Wall{}, zap.New(core), func() actor.Actor { return actor.ReceiveFunc(receive) })
		parent := props(clock.Wall{}, zap.NewNop(), func() actor.Actor {
			var pid *actor.PID
			return actor.ReceiveFunc(func(c actor.Context) {
				switch c.Message().(type) {
				case *actor.Started:
					pid = c.Spawn(child)
				case string, int:
					c.Forward(pid)
				}
			})
		})
		pid := system.Root.Spawn(parent)
		const panics = 15
		for range panics {
			system.Root.Send(pid, "panic")
			time.Sleep(restartDelayMax + time.Second)
		}
		got, err := system.Root.RequestFuture(pid, 1, time.Second).Result()
		if err != nil {
			t.Fatal(err)
		}
		if got != panics+1 {
			t.Errorf("started %v times, want %d", got, panics+1)
		}
		if err := system.Root.StopFuture(pid).Wait(); err != nil {
			t.Fatal(err)
		}
		system.Shutdown()
	})
	if n := logs.FilterMessage("actor panicked, it is restarted").Len(); n != 15 {
		t.Errorf("%d panics logged, want 15", n)
	}
}

// An actor that waits for its children gets messages; it must not spawn another
// child then, which nobody would stop.
func TestNoChildIsSpawnedWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		system, hold := NewSystem(zap.NewNop()), make(chan struct{})
		child := func() actor.Actor {
			return actor.ReceiveFunc(func(c actor.Context) {
				if _, ok := c.Message().(*actor.Stopping); ok {
					<-hold
				}
			})
		}
		spawned := 0
		pid := system.Root.Spawn(props(clock.Wall{}, zap.NewNop(), func() actor.Actor {
			return actor.ReceiveFunc(func(c actor.Context) {
				if _, ok := c.Message().(string); ok {
					c.Spawn(props(clock.Wall{}, zap.NewNop(), child))
					spawned++
				}
			})
		}))
		system.Root.Send(pid, "spawn")
		synctest.Wait()
		stopped := system.Root.StopFuture(pid)
		synctest.Wait()
		asked := system.Root.RequestFuture(pid, "spawn", time.Second)
		synctest.Wait()
		close(hold)
		if err := stopped.Wait(); err != nil {
			t.Fatal(err)
		}
		if spawned != 1 {
			t.Errorf("%d children, want 1", spawned)
		}
		if a, err := asked.Result(); err != nil {
			t.Fatal(err)
		} else if _, ok := a.(askFailed); !ok {
			t.Errorf("answer %v, want askFailed", a)
		}
		system.Shutdown()
	})
}
