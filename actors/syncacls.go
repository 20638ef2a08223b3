package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"kagami/fetch"
	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

const (
	// syncACLsAtOnce is how many changes of ACLs one command makes.
	syncACLsAtOnce = 5_000
	// syncACLUnit is how many bytes of an entry's texts weigh as much as a record: the
	// texts of a command stay far below what a request between nodes may have, however
	// many of their characters need escaping.
	syncACLUnit = 20
	// syncACLsShown is how many entries a log line has.
	syncACLsShown = 20
)

// acls copies ACLs (spec: metadata-sync.md, ACLs). Where either side has no authorizer
// there is nothing to copy.
func (s *syncer) acls(ctx context.Context, topics []*metadata.Topic) error {
	image := s.outside.Image()
	mi := image.Mirror(s.mirror)
	if mi == nil || !s.authorizes {
		return nil
	}
	rules, err := configs.CompileACLRules(configs.MirrorValues(mi.Configs).List(configs.MirrorACLInclude))
	if err != nil {
		return fmt.Errorf("%s %w", configs.MirrorACLInclude, err)
	}
	if rules.Empty() {
		return nil
	}
	read, err := s.source.ACLs(ctx)
	if errors.Is(err, fetch.ErrSecurityDisabled) {
		return nil
	}
	if err != nil {
		return err
	}
	plan := planACLs(s.mirror, rules, image.ACLs(), sourceACLs(read))
	for _, n := range plan.notes {
		if s.told.first(n) {
			s.log.Warn("ACL of the source isn't copied", zap.String("why", n))
		}
	}
	errs := []error{s.confirm(ctx, &plan)}
	if len(plan.changes) > 0 { // and it isn't another cluster by now
		if err := s.same(ctx, topicNames(topics[:1])); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	for part := range parts(plan.changes, syncACLsAtOnce, aclWeight) {
		if err := outcomeError(s.outside.Submit(ctx, s.who, messages.FollowACLs{Mirror: s.mirror, Changes: part, Expect: s.connection})); err != nil {
			errs = append(errs, err)
			continue
		}
		s.log.Info("ACLs follow the source", zap.Int("count", len(part)), shownACLs("copied", part, false), shownACLs("removed", part, true))
	}
	return errors.Join(errs...)
}

// confirm asks all brokers of the source before anything goes: one that lags behind the
// others doesn't know their newest entries, and a DENY that goes for a moment opens a door.
// Where one doesn't answer nothing goes.
func (s *syncer) confirm(ctx context.Context, plan *aclPlan) error {
	if plan.gone() && len(s.view.Brokers) == 0 {
		plan.keepAll()
		return fmt.Errorf("%w: it names no brokers", errACLsStay)
	}
	for _, b := range s.view.Brokers {
		if !plan.gone() {
			return nil
		}
		read, err := s.source.ACLsOf(ctx, b)
		if err != nil {
			plan.keepAll()
			return fmt.Errorf("%w: broker %d: %w", errACLsStay, b.ID, err)
		}
		plan.keep(sourceACLs(read))
	}
	return nil
}

var errACLsStay = errors.New("ACLs that the source seems to have no more stay, until all of its brokers say so")

func aclWeight(c messages.ACLChange) int {
	return (len(c.Name) + len(c.Principal) + len(c.Host)) / syncACLUnit
}

// shownACLs names the first few.
func shownACLs(key string, changes []messages.ACLChange, gone bool) zap.Field {
	var out []string
	for _, c := range changes {
		if c.Gone == gone && len(out) < syncACLsShown {
			out = append(out, c.String())
		}
	}
	if out == nil {
		return zap.Skip()
	}
	return zap.Strings(key, out)
}

func sourceACLs(read []fetch.SourceACL) []messages.ACL {
	out := make([]messages.ACL, len(read))
	for i, a := range read {
		out[i] = messages.ACL{
			Type: messages.ACLResourceType(a.ResourceType), Pattern: messages.ACLPattern(a.PatternType), Name: a.ResourceName,
			Principal: a.Principal, Host: a.Host, Operation: messages.ACLOperation(a.Operation), Permission: messages.ACLPermission(a.Permission),
		}
	}
	return out
}

// aclPlan is what a look at the source's ACLs leads to.
type aclPlan struct {
	changes []messages.ACLChange // in the order to make them
	notes   []string             // entries that can't be copied
}

// planACLs decides which entries are copied and which go. here is what there is on this
// side, source all that the source has: an entry goes only if this mirror made it, the
// rules still name it, and the source has it no more (OP-31). Entries about cluster
// mirrors are each cluster's own.
func planACLs(mirror string, rules configs.ACLRules, here []metadata.StoredACL, source []messages.ACL) aclPlan {
	var plan aclPlan
	now := make(map[messages.ACL]*metadata.StoredACL, len(here))
	for i := range here {
		now[here[i].ACL] = &here[i]
	}
	sees := make(map[messages.ACL]bool, len(source))
	for _, a := range source {
		if sees[a] {
			continue
		}
		sees[a] = true
		if a.Type == messages.ACLClusterMirror || !rules.Match(a) {
			continue
		}
		if err := a.Check(); err != nil {
			plan.notes = append(plan.notes, fmt.Sprintf("%s: %v", a, err))
			continue
		}
		if is := now[a]; is == nil || len(is.Mirrors) > 0 && !slices.Contains(is.Mirrors, mirror) {
			plan.changes = append(plan.changes, messages.ACLChange{ACL: a})
		}
	}
	for i := range here {
		a := &here[i]
		if !sees[a.ACL] && a.Type != messages.ACLClusterMirror && slices.Contains(a.Mirrors, mirror) && rules.Match(a.ACL) {
			plan.changes = append(plan.changes, messages.ACLChange{ACL: a.ACL, Gone: true})
		}
	}
	// What closes a door comes before what opens one: on the way nobody may do what
	// neither the old nor the new entries allow.
	slices.SortFunc(plan.changes, func(a, b messages.ACLChange) int {
		return cmp.Or(cmp.Compare(opens(a), opens(b)), a.Compare(b.ACL))
	})
	return plan
}

// opens is 1 for a change that gives a right, and 0 for one that takes one.
func opens(c messages.ACLChange) int {
	if (c.Permission == messages.ACLAllow) != c.Gone {
		return 1
	}
	return 0
}

// gone reports whether entries are to be removed.
func (p *aclPlan) gone() bool {
	return slices.ContainsFunc(p.changes, func(c messages.ACLChange) bool { return c.Gone })
}

// keepAll takes back every removal.
func (p *aclPlan) keepAll() {
	p.changes = slices.DeleteFunc(p.changes, func(c messages.ACLChange) bool { return c.Gone })
}

// keep takes back the removal of what the source has after all.
func (p *aclPlan) keep(source []messages.ACL) {
	has := make(map[messages.ACL]bool, len(source))
	for _, a := range source {
		has[a] = true
	}
	p.changes = slices.DeleteFunc(p.changes, func(c messages.ACLChange) bool { return c.Gone && has[c.ACL] })
}
