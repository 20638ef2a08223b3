package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence/metadata"
)

// securitySample is a request of the keys about who may do what.
func securitySample(key int16) kmsg.Request {
	switch key {
	case 17:
		req := kmsg.NewPtrSASLHandshakeRequest()
		req.Mechanism = "PLAIN"
		return req
	case 29:
		req := kmsg.NewPtrDescribeACLsRequest()
		req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = 1, 1, 1, 1
		return req
	case 30:
		req := kmsg.NewPtrCreateACLsRequest()
		req.Creations = []kmsg.CreateACLsRequestCreation{{ResourceType: 2, ResourcePatternType: 3, ResourceName: "t", Principal: "User:a", Host: "*", Operation: 3, PermissionType: 3}}
		return req
	case 31:
		req := kmsg.NewPtrDeleteACLsRequest()
		req.Filters = []kmsg.DeleteACLsRequestFilter{{ResourceType: 2, ResourcePatternType: 1, Operation: 1, PermissionType: 1}}
		return req
	case 36:
		return kmsg.NewPtrSASLAuthenticateRequest()
	case 38:
		return kmsg.NewPtrCreateDelegationTokenRequest()
	case 39:
		return kmsg.NewPtrRenewDelegationTokenRequest()
	case 40:
		return kmsg.NewPtrExpireDelegationTokenRequest()
	case 41:
		return kmsg.NewPtrDescribeDelegationTokenRequest()
	case 50:
		return kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	case 51:
		req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
		req.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: "u", Mechanism: 1, Iterations: 4096, Salt: []byte("salt"), SaltedPassword: make([]byte, 32)}}
		return req
	default:
		return nil
	}
}

// securityLocked carries out the commands of those requests; ok is false for others.
func (w *world) securityLocked(cmd messages.Command) (items []messages.Item, ok bool) {
	switch c := cmd.(type) {
	case messages.CreateACLs:
		for _, a := range c.Entries {
			if w.img.ACL(a) == nil {
				w.applyLocked(metadata.ACLRecord(metadata.StoredACL{ACL: a, ID: messages.NewTopicID()}))
			}
			items = append(items, messages.Item{Err: a.Check()})
		}
	case messages.DeleteACLs:
		for _, f := range c.Filters {
			var item messages.Item
			for _, a := range w.img.ACLs() {
				if f.Matches(a.ACL) {
					item.ACLs = append(item.ACLs, a.ACL)
					w.applyLocked(metadata.RemoveACLRecord(a.ID))
				}
			}
			items = append(items, item)
		}
	case messages.AlterScram:
		for _, ch := range c.Changes {
			err := messages.CheckScram(ch)
			if err == nil {
				w.applyLocked(metadata.ScramRecord(metadata.ScramUser{Name: ch.User, Mechanism: ch.Mechanism}, ch.Set))
			}
			items = append(items, messages.Item{Err: err})
		}
	default:
		return nil, false
	}
	return items, true
}
