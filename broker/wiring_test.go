package broker

import (
	"kagami/cluster"
	"kagami/persistence/metadata"
)

// What cmd wires in fits the interfaces.
var (
	_ Partition = (*cluster.Replica)(nil)
	_ Images    = (*metadata.Store)(nil)
	_ History   = (*metadata.Store)(nil)
)
