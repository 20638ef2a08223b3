package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"kagami/test/kafka/proc"
)

// log4jProperties: to standard output, for the releases that log by log4j 1.
const log4jProperties = `log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n
`

// properties renders the server.properties of one broker: small buffers and
// threads, short delays, internal topics that one broker can hold. Old releases
// ignore the keys they don't know.
func (c *Cluster) properties(id int) string {
	b := c.brokers[id]
	replicas := fmt.Sprint(min(c.opts.Brokers, 3))
	all := map[string]string{
		"log.dirs":                                c.LogDir(id),
		"auto.create.topics.enable":               "false",
		"group.initial.rebalance.delay.ms":        "0",
		"offsets.topic.num.partitions":            "4",
		"offsets.topic.replication.factor":        replicas,
		"transaction.state.log.num.partitions":    "4",
		"transaction.state.log.min.isr":           "1",
		"num.network.threads":                     "2",
		"num.io.threads":                          "4",
		"log.cleaner.dedupe.buffer.size":          "4194304",
		"log.cleaner.backoff.ms":                  "200",
		"log.retention.check.interval.ms":         "1000",
		"log.segment.delete.delay.ms":             "500",
		"log.initial.task.delay.ms":               "500",
		"leader.imbalance.check.interval.seconds": "300",
		"controlled.shutdown.enable":              "true",

		"transaction.state.log.replication.factor":         replicas,
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"share.coordinator.state.topic.replication.factor": "1",
	}
	if c.opts.Version.zookeeper() {
		maps.Copy(all, map[string]string{
			"broker.id":                       fmt.Sprint(id),
			"listeners":                       "PLAINTEXT://" + proc.Addr(b.port),
			"zookeeper.connect":               proc.Addr(c.zkPort),
			"zookeeper.session.timeout.ms":    "6000",
			"zookeeper.connection.timeout.ms": "60000", // it starts at the same time as the broker
		})
	} else {
		maps.Copy(all, c.kraft(b))
	}
	for _, l := range c.opts.Listeners {
		all["listeners"] += "," + l
	}
	if len(c.opts.Advertised) > 0 {
		all["advertised.listeners"] = c.advertised(all["listeners"])
	}
	maps.Copy(all, c.opts.Properties)
	if c.opts.BrokerProperties != nil {
		maps.Copy(all, c.opts.BrokerProperties(id))
	}
	var out strings.Builder
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&out, "%s=%s\n", k, all[k])
	}
	return out.String()
}

// advertised is what clients are told of listeners, but for the controller's, which none
// may know.
func (c *Cluster) advertised(listeners string) string {
	var out []string
	for l := range strings.SplitSeq(listeners, ",") {
		name, address, _ := strings.Cut(l, "://")
		if other, ok := c.opts.Advertised[name]; ok {
			address = other
		}
		if name != "CONTROLLER" {
			out = append(out, name+"://"+address)
		}
	}
	return strings.Join(out, ",")
}

func (c *Cluster) kraft(b *broker) map[string]string {
	var voters []string
	for _, id := range c.IDs() {
		if port := c.brokers[id].controllerPort; port != 0 {
			voters = append(voters, fmt.Sprintf("%d@%s", id, proc.Addr(port)))
		}
	}
	p := map[string]string{
		"node.id":                        fmt.Sprint(b.id),
		"process.roles":                  "broker",
		"listeners":                      "PLAINTEXT://" + proc.Addr(b.port),
		"controller.listener.names":      "CONTROLLER",
		"controller.quorum.voters":       strings.Join(voters, ","),
		"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
		"inter.broker.listener.name":     "PLAINTEXT",
		"broker.session.timeout.ms":      "6000",
		"broker.heartbeat.interval.ms":   "500",
	}
	if b.controllerPort != 0 {
		p["process.roles"] = "broker,controller"
		p["listeners"] += ",CONTROLLER://" + proc.Addr(b.controllerPort)
	}
	return p
}
