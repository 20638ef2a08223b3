package group

import "kagami/messages/groups"

// goal is what a member is to come to.
type goal struct {
	epoch  int32
	target []partition
	free   func(partition) bool // nobody else has it
}

// towards is a member's next step to the target assignment (KIP-848, "Member
// assignment"): it gives up first, and only then its epoch grows; it is given what
// others have when they have given it up. owned is what the member says that it has,
// known is false where it didn't say.
//
//	            target differs
//	stable -----------------------> unrevoked    has partitions that it must give up
//	  ^  ^                             |
//	  |  +--- everything is free ------+
//	  |                                v
//	  +--- others gave up -------- unreleased    waits for partitions of others
func (s standing) towards(g goal, owned held, known bool) standing {
	switch s.stage {
	case groups.StageStable:
		if s.epoch == g.epoch {
			return s
		}
	case groups.StageUnrevoked:
		if !known || s.revoking.overlaps(owned) {
			return s
		}
	case groups.StageUnreleased:
	}
	keep, give, waits := held{}, held{}, false
	var more []partition
	wanted := make(map[partition]struct{}, len(g.target))
	for _, p := range g.target {
		wanted[p] = struct{}{}
		epoch, has := s.assigned[p]
		switch {
		case has:
			keep[p] = epoch
		case g.free(p):
			more = append(more, p)
		default:
			waits = true
		}
	}
	for p, epoch := range s.assigned {
		if _, ok := wanted[p]; !ok {
			give[p] = epoch
		}
	}
	if len(give) > 0 && (!known || give.overlaps(owned)) {
		return standing{epoch: s.epoch, previous: s.previous, stage: groups.StageUnrevoked, assigned: keep, revoking: give}
	}
	next := standing{epoch: g.epoch, previous: s.previous, stage: groups.StageStable, assigned: keep}
	if s.epoch != g.epoch {
		next.previous = s.epoch
	}
	for _, p := range more {
		next.assigned[p] = g.epoch
	}
	if waits {
		next.stage = groups.StageUnreleased
	}
	return next
}

func (h held) overlaps(other held) bool {
	for p := range h {
		if _, ok := other[p]; ok {
			return true
		}
	}
	return false
}

// subset reports whether all of h is in other.
func (h held) subset(other held) bool {
	for p := range h {
		if _, ok := other[p]; !ok {
			return false
		}
	}
	return true
}
