package kafka

import (
	"embed"
	"fmt"
)

// The releases of the fixture. Each has a pom in poms/.
const (
	V44 Version = "4.4.0" // the usual source
	V39 Version = "3.9.2" // KRaft, no share groups
	V30 Version = "3.0.0" // oldest 3.x; Fetch 12
	V28 Version = "2.8.2" // topic ids in Metadata, Fetch 12
	V21 Version = "2.1.1" // oldest source; Fetch 10, no topic ids

	// Latest is what Options.Version defaults to, and whose tools are used
	// against clusters of every version.
	Latest = V44

	mirrorMaker Version = "mirrormaker"
)

// Versions are all releases of the fixture, newest first.
func Versions() []Version { return []Version{V44, V39, V30, V28, V21} }

// Version is a release of Apache Kafka, one of those above.
type Version string

//go:embed poms/*.xml
var poms embed.FS

func (v Version) pom() ([]byte, error) {
	b, err := poms.ReadFile("poms/" + string(v) + ".xml")
	if err != nil {
		return nil, fmt.Errorf("find Kafka %s: %w", v, err)
	}
	return b, nil
}

// zookeeper: the release is run with ZooKeeper.
func (v Version) zookeeper() bool { return v == V30 || v == V28 || v == V21 }
