package metadata

import (
	"fmt"
	"maps"
	"slices"

	"kagami/messages"
	"kagami/messages/wire"
)

// Quota is what is limited for one entity.
type Quota struct {
	Entity messages.QuotaEntity
	Limits map[string]float64 // by messages.QuotaProduceRate etc.
}

// Quotas lists all quotas by entity.
func (i *Image) Quotas() []Quota { return i.quotas }

// QuotaOf is the limits of one entity, nil for none.
func (i *Image) QuotaOf(e messages.QuotaEntity) map[string]float64 {
	if at, ok := slices.BinarySearchFunc(i.quotas, e, compareQuota); ok {
		return i.quotas[at].Limits
	}
	return nil
}

func compareQuota(q Quota, e messages.QuotaEntity) int { return q.Entity.Compare(e) }

// ClientMetrics is the subscriptions of client metrics by name, with what is set on each.
func (i *Image) ClientMetrics() map[string]map[string]string { return i.metrics }

// QuotaRecord is the record that sets a limit; a nil limit removes it.
func QuotaRecord(e messages.QuotaEntity, key string, limit *float64) *wire.ClientQuotaRecord {
	r := wire.NewPtrClientQuotaRecord()
	for _, typ := range messages.QuotaTypes() {
		part := e.Part(typ)
		if !part.Set {
			continue
		}
		d := wire.NewClientQuotaRecordEntityData()
		d.EntityType = typ
		if !part.Default {
			d.EntityName = &part.Name
		}
		r.Entity = append(r.Entity, d)
	}
	r.Limited, r.Remove = key, limit == nil
	if limit != nil {
		r.Value = *limit
	}
	return r
}

func (b *builder) setQuota(r *wire.ClientQuotaRecord) error {
	var e messages.QuotaEntity
	for _, d := range r.Entity {
		part := e.Part(d.EntityType)
		if part == nil || part.Set {
			return fmt.Errorf("%w: quota of entity type %q", ErrBadRecord, d.EntityType)
		}
		*part = messages.QuotaPart{Set: true, Default: d.EntityName == nil}
		if d.EntityName != nil {
			part.Name = *d.EntityName
		}
	}
	b.delta.Quotas = true
	// Quotas are few and change seldom: all of the list is copied.
	quotas := slices.Clone(b.img.quotas)
	at, found := slices.BinarySearchFunc(quotas, e, compareQuota)
	if !found {
		quotas = slices.Insert(quotas, at, Quota{Entity: e})
	}
	limits := maps.Clone(quotas[at].Limits)
	if limits == nil {
		limits = make(map[string]float64)
	}
	if r.Remove {
		delete(limits, r.Limited)
	} else {
		limits[r.Limited] = r.Value
	}
	quotas[at].Limits = limits
	if len(limits) == 0 {
		quotas = slices.Delete(quotas, at, at+1)
	}
	b.img.quotas = quotas
	return nil
}

// setClientMetrics sets a config of a subscription; one without any isn't kept.
func (b *builder) setClientMetrics(r *wire.ConfigRecord) {
	if b.ownSubs == nil {
		b.ownSubs = make(map[string]bool)
		b.img.metrics = maps.Clone(b.img.metrics)
		if b.img.metrics == nil {
			b.img.metrics = make(map[string]map[string]string)
		}
	}
	m := b.img.metrics[r.ResourceName]
	if !b.ownSubs[r.ResourceName] {
		m = maps.Clone(m)
		b.ownSubs[r.ResourceName] = true
	}
	if m = put(m, r.Name, r.Value); len(m) == 0 {
		delete(b.img.metrics, r.ResourceName)
	} else {
		b.img.metrics[r.ResourceName] = m
	}
	b.delta.ClientMetrics = true
}
