package tool

import (
	"fmt"
	"maps"
	"net"
	"strings"

	"github.com/magiconair/properties"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"kagami/fetch"
)

// toolClientID is what the tools call themselves unless client.id is set.
const toolClientID = "kagami-admin"

// loadProperties reads a file of Java properties. ${x} stays as it is: Java
// doesn't expand it.
func loadProperties(file string) (map[string]string, error) {
	l := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := l.LoadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return p.Map(), nil
}

// seeds splits a bootstrap list; `:9094` means localhost.
func seeds(bootstrap string) ([]string, error) {
	var out []string
	for item := range strings.SplitSeq(bootstrap, ",") {
		item = strings.TrimSpace(item)
		if strings.HasPrefix(item, ":") {
			item = "localhost" + item
		}
		if item == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(item); err != nil {
			return nil, usagef("--bootstrap-server %s: want host:port", item)
		}
		out = append(out, item)
	}
	if len(out) == 0 {
		return nil, usagef("--bootstrap-server must be specified")
	}
	return out, nil
}

// connect makes a client of the destination cluster with the settings of
// --command-config, which are those of a mirror's connection: the same code
// reads them, and refuses what it can't honour.
func connect(bootstrap, commandConfig string) (*kgo.Client, error) {
	list, err := seeds(bootstrap)
	if err != nil {
		return nil, err
	}
	props := map[string]string{}
	if commandConfig != "" {
		given, err := loadProperties(commandConfig)
		if err != nil {
			return nil, err
		}
		maps.Copy(props, given)
	}
	props["bootstrap.servers"] = strings.Join(list, ",")
	cfg, err := fetch.ParseConfig(props)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", commandConfig, err)
	}
	id := props["client.id"]
	if id == "" {
		id = toolClientID
	}
	cl, err := fetch.NewClient(cfg, id, zap.NewNop())
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", cfg, err)
	}
	return cl, nil
}
