package actors

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"kagami/messages"
	"kagami/messages/configs"
	"kagami/persistence/metadata"
)

// aclModel says, in its own words, whose each entry is: "" is the operator, who isn't one
// of several.
type aclModel map[messages.ACL]map[string]bool

func (m aclModel) follow(mirror string, match func(messages.ACL) bool, source map[messages.ACL]bool) {
	for a := range source {
		switch {
		case a.Type == messages.ACLClusterMirror || !match(a):
		case m[a] == nil:
			m[a] = map[string]bool{mirror: true}
		case !m[a][""]:
			m[a][mirror] = true
		}
	}
	for a, of := range m {
		if !source[a] && match(a) && of[mirror] {
			if delete(of, mirror); len(of) == 0 {
				delete(m, a)
			}
		}
	}
}

func (m aclModel) same(image *metadata.Image) error {
	here := image.ACLs()
	if len(here) != len(m) {
		return fmt.Errorf("%d entries, want %d", len(here), len(m))
	}
	for _, s := range here {
		of, ok := m[s.ACL]
		if !ok {
			return fmt.Errorf("%s is too many", s.ACL)
		}
		if of[""] != (len(s.Mirrors) == 0) {
			return fmt.Errorf("%s is of %v, want %v", s.ACL, s.Mirrors, of)
		}
		for _, name := range s.Mirrors {
			if !of[name] || len(of) != len(s.Mirrors) {
				return fmt.Errorf("%s is of %v, want %v", s.ACL, s.Mirrors, of)
			}
		}
	}
	return nil
}

// aclUniverse is small, so that sources, mirrors and the operator meet.
func aclUniverse() []messages.ACL {
	var out []messages.ACL
	for _, kind := range []messages.ACLResourceType{messages.ACLTopic, messages.ACLGroup, messages.ACLClusterMirror} {
		for _, name := range []string{"a", "b"} {
			for _, pattern := range []messages.ACLPattern{messages.ACLLiteral, messages.ACLPrefixed} {
				for _, permission := range []messages.ACLPermission{messages.ACLAllow, messages.ACLDeny} {
					a := readRight(name)
					a.Type, a.Pattern, a.Permission = kind, pattern, permission
					if kind == messages.ACLClusterMirror {
						a.Operation = messages.ACLAlter
					}
					out = append(out, a)
				}
			}
		}
	}
	return out
}

// TestFollowACLsRandomly (OP-31): what two mirrors and an operator do in any order leaves
// what the model says. A plan closes doors before it opens any, and what it has done needs
// nothing more. An old plan, made of what was there before others came, does no harm.
func TestFollowACLsRandomly(t *testing.T) {
	universe := aclUniverse()
	ruleTexts := []string{"*", "TOPIC", "TOPIC;a", "GROUP;*;*;DENY", "*;b;READ"}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		w, model := newWorld(t), aclModel{}
		w.createMirror("m1")
		w.createMirror("m2")
		sources := map[string]map[messages.ACL]bool{"m1": {}, "m2": {}}
		pick := func() messages.ACL { return universe[r.IntN(len(universe))] }
		for step := range 60 {
			what := ""
			switch r.IntN(4) {
			case 0:
				a := pick()
				what = "the operator adds " + a.String()
				w.ok(messages.CreateACLs{Entries: []messages.ACL{a}})
				model[a] = map[string]bool{"": true}
			case 1:
				a := pick()
				what = "the operator removes " + a.String()
				w.do(messages.DeleteACLs{Filters: []messages.ACLFilter{{Type: a.Type, Pattern: a.Pattern, Name: &a.Name, Principal: &a.Principal, Host: &a.Host, Operation: a.Operation, Permission: a.Permission}}})
				delete(model, a)
			default:
				name := []string{"m1", "m2"}[r.IntN(2)]
				source := sources[name]
				for range r.IntN(4) {
					if a := pick(); source[a] {
						delete(source, a)
					} else {
						source[a] = true
					}
				}
				text := ruleTexts[r.IntN(len(ruleTexts))]
				what = name + " follows by " + text
				rules, err := configs.CompileACLRules(messages.ParseList(text))
				require.NoError(t, err)
				var read []messages.ACL
				for a := range source {
					read = append(read, a)
				}
				plan := planACLs(name, rules, w.img.ACLs(), read)
				require.True(t, slices.IsSortedFunc(plan.changes, func(a, b messages.ACLChange) int { return opens(a) - opens(b) }))
				// The answer for it may be lost, and it is sent again.
				for range 1 + r.IntN(2) {
					out := w.do(messages.FollowACLs{Mirror: name, Changes: plan.changes})
					require.NoError(t, outcomeError(out))
				}
				model.follow(name, rules.Match, source)
				require.Empty(t, planACLs(name, rules, w.img.ACLs(), read).changes, "seed %d, step %d", seed, step)
			}
			require.NoError(t, model.same(w.img), "seed %d, step %d: %s", seed, step, what)
		}
	}
}

// TestACLCommandsFitTheBus: a command of the longest texts, of which every character needs
// escaping, is far below what a request between nodes may have, and so is the answer.
func TestACLCommandsFitTheBus(t *testing.T) {
	long := strings.Repeat("\x01", 4096)
	changes := make([]messages.ACLChange, 2000)
	for i := range changes {
		changes[i].ACL = readRight(long)
		changes[i].Principal, changes[i].Host = "User:"+long[5:], fmt.Sprintf("%04d", i)+long[4:]
	}
	sum := 0
	for part := range parts(changes, syncACLsAtOnce, aclWeight) {
		require.NoError(t, part[0].Check())
		sum += len(part)
		b, err := messages.ForwardedCommand{Command: messages.FollowACLs{Mirror: "m", Changes: part}}.Encode()
		require.NoError(t, err)
		require.Less(t, len(b), 10<<20)
		items := make([]messages.Item, len(part))
		for i := range items {
			items[i] = messages.Item{Name: part[i].Name, Err: errors.New(long)}
		}
		b, err = messages.EncodeOutcome(messages.Outcome{Items: items})
		require.NoError(t, err)
		require.Less(t, len(b), 20<<20)
	}
	require.Equal(t, len(changes), sum)
}
