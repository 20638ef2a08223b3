package proc

import "kagami/internal/ports"

// Ports returns n different ports on 127.0.0.1 that nobody listens on.
func Ports(n int) ([]int, error) { return ports.Free(n) }

// Addr is 127.0.0.1:port.
func Addr(port int) string { return ports.Addr(port) }
