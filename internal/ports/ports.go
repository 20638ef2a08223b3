// Package ports finds ports for nodes and brokers that this process starts on its
// own machine: of tests and of the demo.
package ports

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"sync"
)

// The ports handed out lie below the range from which Linux takes the near end of
// outgoing connections (32768 up): else a client's connection could sit on the
// port of a broker that is down for a moment and is to come back.
const portMin, portMax = 12000, 32000

// handed remembers ports that this process has given away.
var handed sync.Map

// Free returns n different ports on 127.0.0.1 that nobody listens on.
func Free(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range 100 * (n + 1) {
		if len(ports) == n {
			return ports, nil
		}
		var at [4]byte
		if _, err := rand.Read(at[:]); err != nil {
			return nil, fmt.Errorf("choose a port: %w", err)
		}
		port := portMin + int(binary.NativeEndian.Uint32(at[:])%(portMax-portMin))
		if _, taken := handed.LoadOrStore(port, true); taken {
			continue
		}
		l, err := net.Listen("tcp4", Addr(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			continue
		}
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find %d free ports: only %d", n, len(ports))
}

// Addr is 127.0.0.1:port.
func Addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// FreeAddr is 127.0.0.1 with a port that nobody listens on.
func FreeAddr() (string, error) {
	ports, err := Free(1)
	if err != nil {
		return "", err
	}
	return Addr(ports[0]), nil
}
