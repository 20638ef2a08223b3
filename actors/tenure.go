package actors

import (
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
)

// tenured is a replica that tells whether this node leads it. *cluster.Replica is
// one, and documents the methods.
type tenured interface {
	Tenure() uint64
	Watch(f func()) (cancel func())
}

// tenureWatch has an actor told whenever the node begins or ends to lead a replica.
// The metadata image says who shall lead; whether that node does is known here: its
// claim may take long or fail, another node may have claimed in between without an
// image that named it, and the order of the partition may not reach it any more.
type tenureWatch struct {
	of     tenured
	cancel func()
}

// watchTenure sends message to the actor after each change of the tenure that the
// caller can't see by leads yet. It may be sent once more for nothing.
func watchTenure(c actor.Context, of tenured, message any) *tenureWatch {
	root, self := c.ActorSystem().Root, c.Self()
	told := &atomic.Uint64{}
	told.Store(of.Tenure())
	return &tenureWatch{of: of, cancel: of.Watch(func() {
		if now := of.Tenure(); told.Swap(now) != now {
			root.Send(self, message)
		}
	})}
}

// leads is the tenure under which the node leads now.
func (w *tenureWatch) leads() (tenure uint64, ok bool) {
	tenure = w.of.Tenure()
	return tenure, tenure&1 == 1
}
