package configs

import (
	"fmt"
	"strings"

	"kagami/messages"
)

// ACLRules are compiled rules of mirror.acl.include. The zero value matches nothing.
type ACLRules struct{ rules []aclRule }

// aclRule is one rule; zero and nil are any.
type aclRule struct {
	kind       messages.ACLResourceType
	name       *messages.Patterns
	operation  messages.ACLOperation
	permission messages.ACLPermission
	principal  *messages.Patterns
}

// CompileACLRules reads rules resourceType;resourceName;operation;permissionType;principal,
// trailing parts left out, "*" for any. The error names the first bad one.
func CompileACLRules(items []string) (ACLRules, error) {
	var out ACLRules
	for _, item := range items {
		r, err := compileACLRule(item)
		if err != nil {
			return ACLRules{}, fmt.Errorf("has the rule %q: %w", item, err)
		}
		out.rules = append(out.rules, r)
	}
	return out, nil
}

func compileACLRule(item string) (r aclRule, err error) {
	const partsMax = 5
	parts := strings.Split(item, ";")
	if len(parts) > partsMax {
		return r, fmt.Errorf("it has more than five parts")
	}
	for i, part := range parts {
		part = strings.TrimSpace(part)
		if part == messages.ACLWildcard {
			continue
		}
		switch i {
		case 0:
			r.kind, err = named(part, messages.ACLTopic, messages.ACLUser)
		case 1:
			r.name, err = messages.CompilePatterns([]string{part})
		case 2:
			r.operation, err = named(part, messages.ACLAll, messages.ACLTwoPhaseCommit)
		case 3:
			r.permission, err = named(part, messages.ACLDeny, messages.ACLAllow)
		default:
			r.principal, err = messages.CompilePatterns([]string{part})
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// named is the value of that name, from first to last.
func named[T interface {
	~int8
	fmt.Stringer
}](name string, first, last T) (T, error) {
	var all []string
	for v := first; v <= last; v++ {
		if strings.EqualFold(name, v.String()) {
			return v, nil
		}
		all = append(all, v.String())
	}
	return 0, fmt.Errorf("%q is none of %s", name, strings.Join(all, ", "))
}

// Empty reports whether no rule is set: nothing matches.
func (r ACLRules) Empty() bool { return len(r.rules) == 0 }

// Match reports whether some rule matches the entry. Patterns match the entry's own texts:
// a name of * or a prefix isn't expanded.
func (r ACLRules) Match(a messages.ACL) bool {
	for _, rule := range r.rules {
		if (rule.kind == 0 || rule.kind == a.Type) && (rule.name == nil || rule.name.Match(a.Name)) &&
			(rule.operation == 0 || rule.operation == a.Operation) && (rule.permission == 0 || rule.permission == a.Permission) &&
			(rule.principal == nil || rule.principal.Match(a.Principal)) {
			return true
		}
	}
	return false
}
