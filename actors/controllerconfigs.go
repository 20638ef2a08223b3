package actors

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/messages/secrets"
	"kagami/persistence/metadata"
)

// alterConfigs decides IncrementalAlterConfigs (44) and, with Replace,
// AlterConfigs (33): a resource is changed as a whole or not at all.
func (p *plan) alterConfigs(c messages.AlterConfigs) {
	for i, res := range c.Resources {
		before := len(p.records)
		err := p.alterResource(res, c)
		for _, other := range c.Resources[:i] {
			if other.Type == res.Type && other.Name == res.Name {
				err = fmt.Errorf("%w: resource %q is named twice", messages.ErrInvalidRequest, res.Name)
			}
		}
		if err != nil || c.ValidateOnly {
			p.records = p.records[:before]
		}
		p.item(res.Name, err)
	}
}

// resource is what is set on a resource and what may be set.
type resource struct {
	change messages.ResourceChange
	set    *configs.Set
	old    map[string]string // secrets in clear
	// shut are the secrets that can't be opened here, as they stand in the log.
	shut map[string]string
}

func (p *plan) alterResource(c messages.ResourceChange, cmd messages.AlterConfigs) error {
	r := resource{change: c}
	switch c.Type {
	case messages.ResourceTopic:
		t := p.img.Topic(c.Name)
		if t == nil {
			return fmt.Errorf("%w: topic %q", messages.ErrUnknownTopicOrPartition, c.Name)
		}
		if cmd.Internal && t.Desired != messages.DesiredActive {
			return fmt.Errorf("%w: topic %s is not active in a mirror", messages.ErrInvalidMirrorStates, t.Name)
		}
		r.set, r.old = configs.Topic(), t.Configs
	case messages.ResourceBroker:
		old, err := p.brokerConfigs(c.Name)
		if err != nil {
			return err
		}
		r.set, r.old = configs.Broker(), old
	case messages.ResourceClientMetrics:
		if c.Name == "" {
			return fmt.Errorf("%w: a subscription of client metrics needs a name", messages.ErrInvalidRequest)
		}
		r.set, r.old = configs.ClientMetrics(), p.img.ClientMetrics()[c.Name]
	case messages.ResourceClusterMirror:
		if err := p.mirroringOn(); err != nil {
			return err
		}
		m := p.img.Mirror(c.Name)
		if m == nil {
			return fmt.Errorf("%w: %q", messages.ErrUnknownMirror, c.Name)
		}
		if err := expectConnection(m, cmd.Expect); err != nil {
			return err
		}
		r.set = configs.Mirror()
		r.open(p.env.secrets, m.Configs)
	case messages.ResourceGroup:
		if c.Name == "" {
			return fmt.Errorf("%w: groups have no common default; the nodes' settings are it", messages.ErrInvalidRequest)
		}
		r.set, r.old = configs.Group(), p.img.GroupConfigs()[c.Name]
	case messages.ResourceBrokerLogger:
		return fmt.Errorf("%w: the level of a logger is set on its node", messages.ErrInvalidRequest)
	default:
		return fmt.Errorf("%w: configs of resource type %d", messages.ErrInvalidRequest, c.Type)
	}
	now, err := r.apply(cmd)
	if err != nil {
		return err
	}
	if cmd.Internal && len(r.shut) > 0 {
		maps.Copy(now, r.shut) // what the cluster sets itself has nothing to do with them
	} else if err := r.check(now); err != nil {
		return err
	}
	if c.Type == messages.ResourceGroup {
		if err := configs.CheckGroup(now, p.settings()); err != nil {
			return err
		}
	}
	if c.Type == messages.ResourceClusterMirror && !cmd.Internal {
		forgetSource(r.old, now)
	}
	if c.Type == messages.ResourceTopic && cmd.Internal {
		rememberCopied(c.Changes, now)
	}
	p.diff(c.Type, c.Name, r.before(), now)
	return nil
}

// before is what was set, in clear where it opens.
func (r resource) before() map[string]string {
	if len(r.shut) == 0 {
		return r.old
	}
	out := maps.Clone(r.old)
	maps.Copy(out, r.shut)
	return out
}

// open takes what is set on the resource.
func (r *resource) open(ring *secrets.Ring, values map[string]string) {
	r.old, _ = metadata.OpenConfigs(ring, r.change.Type, r.change.Name, values) // what doesn't open is in shut
	for name, v := range values {
		if _, ok := r.old[name]; !ok {
			if r.shut == nil {
				r.shut = make(map[string]string)
			}
			r.shut[name] = v
		}
	}
}

// stillShut refuses a change that leaves a secret that can't be opened here: what it comes
// to can't be checked. One that sets or removes all of them goes.
func (r *resource) stillShut(cmd messages.AlterConfigs) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.shut)) {
		if cmd.Internal || cmd.Replace || slices.ContainsFunc(r.change.Changes, func(ch messages.ConfigChange) bool { return ch.Name == name }) {
			continue
		}
		id, _ := secrets.Sealed(r.shut[name])
		errs = append(errs, fmt.Errorf("%w: %s is encrypted with key %s, which the controller doesn't have or which doesn't open it: add the key to %s, or set or delete %s in the same request",
			messages.ErrPolicyViolation, name, id, configs.SecretsKeyFile, name))
	}
	return errors.Join(errs...)
}

// brokerConfigs returns what is set on one node, or for "" on all of them.
func (p *plan) brokerConfigs(name string) (map[string]string, error) {
	if name == "" {
		return p.img.BrokerDefaultConfig(), nil
	}
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil || id < 0 || strconv.FormatInt(id, 10) != name || p.img.Node(messages.NodeID(id)) == nil {
		return nil, fmt.Errorf("%w: no node %q; the name is a node id, or empty for all nodes", messages.ErrInvalidRequest, name)
	}
	return p.img.BrokerOwnConfig(messages.NodeID(id)), nil
}

// apply returns what is set after the change, as a fresh map.
func (r resource) apply(cmd messages.AlterConfigs) (map[string]string, error) {
	now := maps.Clone(r.old)
	if now == nil {
		now = make(map[string]string)
	}
	if cmd.Replace {
		for key := range r.old {
			// What the cluster itself has set isn't the client's to replace.
			if r.set.Settable(key) == nil || r.set.Lookup(key) == nil {
				delete(now, key)
			}
		}
	}
	var errs []error
	seen := make(map[string]bool)
	for _, ch := range r.change.Changes {
		if seen[ch.Name] {
			return nil, fmt.Errorf("%w: config %q is named twice", messages.ErrInvalidRequest, ch.Name)
		}
		seen[ch.Name] = true
		if err := r.settable(ch, cmd.Internal); err != nil {
			errs = append(errs, err)
			continue
		}
		if cmd.Replace {
			ch.Op = messages.ConfigSet
		}
		errs = append(errs, r.applyOne(now, ch))
	}
	return now, errors.Join(append(errs, r.stillShut(cmd))...)
}

// settable refuses what the asker may not touch. The mirror manager may set the
// source's cluster id; mirror.name has requests of its own, whoever asks. A key
// that this build doesn't know may be deleted.
func (r resource) settable(ch messages.ConfigChange, internal bool) error {
	if r.change.Type == messages.ResourceClusterMirror && internal && ch.Name == configs.MirrorSourceClusterID {
		return nil
	}
	if ch.Op == messages.ConfigDelete && r.set.Lookup(ch.Name) == nil {
		return nil // what isn't set is gone already
	}
	if err := r.set.Settable(ch.Name); err != nil {
		return err
	}
	if r.change.Type == messages.ResourceTopic && messages.IsInternalTopic(r.change.Name) {
		switch ch.Name {
		case configs.CleanupPolicy, configs.RetentionMs, configs.RetentionBytes, configs.CompressionType:
			return fmt.Errorf("%w: %s of internal topic %s is the cluster's own", messages.ErrPolicyViolation, ch.Name, r.change.Name)
		}
	}
	return nil
}

func (r resource) applyOne(now map[string]string, ch messages.ConfigChange) error {
	switch ch.Op {
	case messages.ConfigDelete:
		delete(now, ch.Name)
		return nil
	case messages.ConfigSet, messages.ConfigAppend, messages.ConfigSubtract:
	default:
		return fmt.Errorf("%w: config operation %d", messages.ErrInvalidRequest, ch.Op)
	}
	if ch.Value == nil {
		return fmt.Errorf("%w: %s has no value", messages.ErrInvalidRequest, ch.Name)
	}
	d := r.set.Lookup(ch.Name)
	if _, sealed := secrets.Sealed(*ch.Value); sealed && d != nil && d.Sensitive() {
		return fmt.Errorf("%w: %s begins like an encrypted value of the metadata log, which no value may", messages.ErrInvalidConfig, ch.Name)
	}
	if ch.Op == messages.ConfigSet {
		now[ch.Name] = *ch.Value
		return nil
	}
	if d.Type != configs.TypeList {
		return fmt.Errorf("%w: %s is no list, nothing can be appended or subtracted", messages.ErrInvalidConfig, ch.Name)
	}
	// Lists that aren't set start from their default (OP-10).
	value, ok := now[ch.Name]
	if !ok && d.Default != nil {
		value = *d.Default
	}
	items, given := messages.ParseList(value), messages.ParseList(*ch.Value)
	if ch.Op == messages.ConfigAppend {
		items = messages.ParseList(messages.FormatList(append(items, given...)))
	} else {
		items = slices.DeleteFunc(items, func(i string) bool { return slices.Contains(given, i) })
	}
	now[ch.Name] = messages.FormatList(items)
	return nil
}

// check validates what is set after the change. Keys of another build that were
// set before don't stand in the way.
func (r resource) check(now map[string]string) error {
	known := make(map[string]string, len(now))
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(now)) {
		old, was := r.old[key]
		if r.set.Lookup(key) == nil && was && old == now[key] {
			continue
		}
		known[key] = now[key]
	}
	errs = append(errs, r.set.Validate(known))
	if r.change.Type == messages.ResourceClusterMirror && errors.Join(errs...) == nil {
		errs = append(errs, checkMirrorConnection(now))
	}
	return errors.Join(errs...)
}

// checkMirrorConnection checks the connection settings against each other, as
// the fetcher will read them.
func checkMirrorConnection(values map[string]string) error {
	if strings.TrimSpace(values[configs.BootstrapServers]) == "" {
		return fmt.Errorf("%w: %s is required", messages.ErrInvalidConfig, configs.BootstrapServers)
	}
	_, err := fetch.ParseConfig(values)
	return err
}

// forgetSource drops the remembered cluster id of the source when a connection
// setting changes: the operator may point the mirror at another cluster (OP-36).
func forgetSource(old, now map[string]string) {
	for _, key := range configs.Mirror().Names() {
		was, had := old[key]
		is, has := now[key]
		if configs.ConnectionSetting(key) && (had != has || was != is) {
			delete(now, configs.MirrorSourceClusterID)
			return
		}
	}
}

// rememberCopied keeps the list of keys that the mirror copied to the topic
// (OP-28): set = copied, deleted = not any more.
func rememberCopied(changes []messages.ConfigChange, now map[string]string) {
	copied := messages.ParseList(now[configs.MirrorCopiedConfigs])
	for _, ch := range changes {
		copied = slices.DeleteFunc(copied, func(k string) bool { return k == ch.Name })
		if ch.Op != messages.ConfigDelete {
			copied = append(copied, ch.Name)
		}
	}
	slices.Sort(copied)
	if len(copied) == 0 {
		delete(now, configs.MirrorCopiedConfigs)
		return
	}
	now[configs.MirrorCopiedConfigs] = messages.FormatList(copied)
}

// diff adds the records that lead from old to now.
func (p *plan) diff(typ messages.ResourceType, name string, old, now map[string]string) {
	keys := maps.Clone(old)
	if keys == nil {
		keys = make(map[string]string)
	}
	maps.Copy(keys, now)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, had := old[key]
		is, has := now[key]
		switch {
		case has && (!had || was != is):
			p.setConfig(typ, name, key, &is)
		case had && !has:
			p.setConfig(typ, name, key, nil)
		}
	}
}

// expectConnection refuses what was decided while a mirror had other connection settings.
func expectConnection(m *metadata.Mirror, expect map[string]string) error {
	if expect != nil && !sameConfigs(connectionConfigs(m.Configs), expect) {
		return fmt.Errorf("%w: the connection settings of mirror %s are other ones by now", messages.ErrSettingsChanged, m.Name)
	}
	return nil
}
