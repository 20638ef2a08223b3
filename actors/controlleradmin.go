package actors

import (
	"fmt"

	"kagami/messages"
	"kagami/messages/wire"
	"kagami/persistence/metadata"
)

// alterQuotas decides AlterClientQuotas: an entry is changed as a whole or not at all.
func (p *plan) alterQuotas(c messages.AlterClientQuotas) {
	seen := make(map[messages.QuotaEntity]bool)
	for _, entry := range c.Entries {
		before := len(p.records)
		err := p.alterQuota(entry)
		if err == nil && seen[entry.Entity] {
			err = fmt.Errorf("%w: an entity is named twice", messages.ErrInvalidRequest)
		}
		seen[entry.Entity] = true
		if err != nil || c.ValidateOnly {
			p.records = p.records[:before]
		}
		p.item("", err)
	}
}

func (p *plan) alterQuota(entry messages.QuotaEntry) error {
	e := entry.Entity
	switch {
	case e == messages.QuotaEntity{}:
		return fmt.Errorf("%w: a quota needs a user, a client id or an address", messages.ErrInvalidRequest)
	case e.IP.Set && (e.User.Set || e.ClientID.Set):
		return fmt.Errorf("%w: a quota of an address can't name a user or a client id", messages.ErrInvalidRequest)
	}
	now := p.img.QuotaOf(e)
	seen := make(map[string]bool)
	for _, v := range entry.Values {
		if seen[v.Key] {
			return fmt.Errorf("%w: quota %s is named twice", messages.ErrInvalidRequest, v.Key)
		}
		seen[v.Key] = true
		limit := 1.0 // of a removal the key alone is checked
		if v.Value != nil {
			limit = *v.Value
		}
		if err := messages.CheckQuota(e, v.Key, limit); err != nil {
			return err
		}
		old, had := now[v.Key]
		if v.Value == nil && had || v.Value != nil && (!had || old != *v.Value) {
			p.add(metadata.QuotaRecord(e, v.Key, v.Value))
		}
	}
	return nil
}

// updateFeatures decides UpdateFeatures: all updates or none.
func (p *plan) updateFeatures(c messages.UpdateFeatures) {
	before := len(p.records)
	failed := false
	for _, u := range c.Updates {
		err := p.updateFeature(u)
		failed = failed || err != nil
		p.item(u.Name, err)
	}
	if failed || c.ValidateOnly {
		p.records = p.records[:before]
	}
}

func (p *plan) updateFeature(u messages.FeatureUpdate) error {
	f, known := messages.FeatureByName(u.Name)
	if !known {
		return fmt.Errorf("%w: this cluster has no feature %q", messages.ErrInvalidUpdateVersion, u.Name)
	}
	level := p.img.FeatureLevel(f)
	switch {
	case u.Level < f.Min || u.Level > f.Max:
		return fmt.Errorf("%w: %s can be %d to %d, not %d", messages.ErrInvalidUpdateVersion, f.Name, f.Min, f.Max, u.Level)
	case u.Level == level:
		return nil
	case f.Fixed:
		return fmt.Errorf("%w: %s is %d in this build and can't be changed", messages.ErrInvalidUpdateVersion, f.Name, level)
	case u.Level > level && u.Type != messages.FeatureUpgrade:
		return fmt.Errorf("%w: %s is %d: %d is an upgrade", messages.ErrInvalidUpdateVersion, f.Name, level, u.Level)
	case u.Level < level && u.Type == messages.FeatureUpgrade:
		return fmt.Errorf("%w: %s is %d: %d is a downgrade, which must be asked for as one", messages.ErrInvalidUpdateVersion, f.Name, level, u.Level)
	}
	r := wire.NewPtrFeatureLevelRecord()
	r.Name, r.FeatureLevel = f.Name, u.Level
	p.add(r)
	return nil
}
