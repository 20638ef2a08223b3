//go:build !linux

package broker

import "kagami/persistence"

const haveSendfile = false

// sendfile is never called where haveSendfile is false.
func (w *frameWriter) sendfile(c *persistence.Chunk) error { return w.writeFile(c) }
