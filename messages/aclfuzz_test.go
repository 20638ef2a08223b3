package messages

import "testing"

// FuzzACL: any numbers and texts are refused or mean something: an entry that may be stored is found by
// itself as a filter, by ANY, and as MATCH by its own name; and no filter finds more than ANY does.
func FuzzACL(f *testing.F) {
	f.Add(int8(2), int8(3), "t", "User:CN=a,b", "*", int8(3), int8(3))
	f.Add(int8(4), int8(4), "kafka-cluster", "User:*", "::1", int8(2), int8(2))
	f.Add(int8(8), int8(4), "*", "Group:\xff", "10.0.0.300", int8(15), int8(3))
	f.Add(int8(-128), int8(127), "", ":", "", int8(0), int8(1))
	f.Fuzz(func(t *testing.T, kind, pattern int8, name, principal, host string, op, permission int8) {
		a := ACL{Type: ACLResourceType(kind), Pattern: ACLPattern(pattern), Name: name, Principal: principal, Host: host, Operation: ACLOperation(op), Permission: ACLPermission(permission)}
		_ = a.String()
		filter := ACLFilter{Type: a.Type, Pattern: a.Pattern, Name: &name, Principal: &principal, Host: &host, Operation: a.Operation, Permission: a.Permission}
		refused := filter.Check()
		if a.Check() != nil {
			return
		}
		if refused != nil {
			t.Fatalf("%s may be stored and not looked for: %v", a, refused)
		}
		every := ACLFilter{Type: ACLAnyResource, Pattern: ACLPatternAny, Operation: ACLAny, Permission: ACLPermissionAny}
		match := every
		match.Pattern, match.Name = ACLPatternMatch, &name
		for i, find := range []ACLFilter{filter, every, match} {
			if !find.Matches(a) {
				t.Fatalf("%s isn't found by filter %d", a, i)
			}
		}
	})
}
