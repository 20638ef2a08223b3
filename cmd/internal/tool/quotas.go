package tool

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/messages/wire"
)

const clientEntity = "client-id"

// knows reports whether some broker serves an API key: without this check the
// client library would only say that a broker is too old.
func knows(ctx context.Context, cl *kgo.Client, key int16) (bool, error) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	if err != nil {
		return false, fmt.Errorf("ask for API versions: %w", err)
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == key {
			return true, nil
		}
	}
	return false, nil
}

func (t *configsTool) needQuotas(ctx context.Context, key int16) error {
	ok, err := knows(ctx, t.client, key)
	if err == nil && !ok {
		err = fmt.Errorf("the server doesn't know client quotas (%s): run this against a cluster that does, such as the source of a mirror", kmsg.NameForKey(key))
	}
	return err
}

func (t *configsTool) alterClient(ctx context.Context) error {
	add, err := t.additions()
	if err != nil {
		return err
	}
	req := kmsg.NewPtrAlterClientQuotasRequest()
	entry := kmsg.NewAlterClientQuotasRequestEntry()
	entity := kmsg.AlterClientQuotasRequestEntryEntity{Type: clientEntity}
	if !t.isDef {
		entity.Name = &t.name
	}
	entry.Entity = append(entry.Entity, entity)
	for _, key := range sortedKeys(add) {
		value, err := strconv.ParseFloat(add[key], 64)
		if err != nil {
			return usagef("Cannot parse quota configuration value for %s: %s", key, add[key])
		}
		entry.Ops = append(entry.Ops, kmsg.AlterClientQuotasRequestEntryOp{Key: key, Value: value})
	}
	for _, key := range messages.ParseList(*t.deleteConfig) {
		entry.Ops = append(entry.Ops, kmsg.AlterClientQuotasRequestEntryOp{Key: key, Remove: true})
	}
	req.Entries = append(req.Entries, entry)
	if err := t.needQuotas(ctx, req.Key()); err != nil {
		return err
	}
	resp, err := req.RequestWith(ctx, t.client)
	if err != nil {
		return fmt.Errorf("alter quotas of client %s: %w", t.name, err)
	}
	for _, e := range resp.Entries {
		text := ""
		if e.ErrorMessage != nil {
			text = *e.ErrorMessage
		}
		if err := wire.ErrorForCode(e.ErrorCode, text); err != nil {
			return err
		}
	}
	t.completed()
	return nil
}

func (t *configsTool) describeClients(ctx context.Context) error {
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	c := kmsg.DescribeClientQuotasRequestComponent{EntityType: clientEntity, MatchType: kmsg.QuotasMatchTypeAny}
	switch {
	case t.isDef:
		c.MatchType = kmsg.QuotasMatchTypeDefault
	case t.name != "":
		c.MatchType, c.Match = kmsg.QuotasMatchTypeExact, &t.name
	}
	req.Components, req.Strict = append(req.Components, c), true
	if err := t.needQuotas(ctx, req.Key()); err != nil {
		return err
	}
	resp, err := req.RequestWith(ctx, t.client)
	if err != nil {
		return fmt.Errorf("describe quotas: %w", err)
	}
	text := ""
	if resp.ErrorMessage != nil {
		text = *resp.ErrorMessage
	}
	if err := wire.ErrorForCode(resp.ErrorCode, text); err != nil {
		return err
	}
	for _, e := range resp.Entries {
		var who, values []string
		for _, en := range e.Entity {
			if en.Name == nil {
				who = append(who, "the default "+en.Type)
			} else {
				who = append(who, en.Type+" '"+*en.Name+"'")
			}
		}
		for _, v := range e.Values {
			values = append(values, v.Key+"="+javaDouble(v.Value))
		}
		sort.Strings(values)
		t.outf("Quota configs for %s are %s\n", strings.Join(who, ", "), strings.Join(values, ", "))
	}
	return nil
}

// javaDouble prints 1024 as 1024.0, as Java does.
func javaDouble(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
