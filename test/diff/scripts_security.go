package diff

import "github.com/twmb/franz-go/pkg/kmsg"

// securitySteps are the requests about rights and users.
func securitySteps() []step {
	made := func(name string, kind kmsg.ACLResourceType) step {
		return step{name: name, req: one(func() kmsg.Request {
			req := kmsg.NewPtrCreateACLsRequest()
			req.Creations = []kmsg.CreateACLsRequestCreation{{ResourceType: kind, ResourcePatternType: 3, ResourceName: "x", Principal: "User:nobody", Host: "*", Operation: 2, PermissionType: 3}}
			return req
		})}
	}
	return []step{
		{name: "all rights", req: one(func() kmsg.Request {
			req := kmsg.NewPtrDescribeACLsRequest()
			req.ResourceType, req.ResourcePatternType, req.Operation, req.PermissionType = 1, 1, 1, 1
			return req
		})},
		made("a right to a topic", 2), made("a right to a group", 3), made("a right to a transactional id", 5),
		{name: "rights taken away", req: one(func() kmsg.Request {
			req := kmsg.NewPtrDeleteACLsRequest()
			req.Filters = []kmsg.DeleteACLsRequestFilter{{ResourceType: 1, ResourcePatternType: 1, Operation: 1, PermissionType: 1}, {ResourceType: 2, ResourcePatternType: 1, Operation: 1, PermissionType: 1}}
			return req
		})},
		{name: "all SCRAM users", req: one(func() kmsg.Request {
			req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
			req.Users = []kmsg.DescribeUserSCRAMCredentialsRequestUser{} // Kafka fails at null when it refuses
			return req
		})},
		{name: "a SCRAM user", req: one(func() kmsg.Request {
			req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
			req.Users = []kmsg.DescribeUserSCRAMCredentialsRequestUser{{Name: "u"}}
			return req
		})},
		{name: "a new SCRAM user", req: one(func() kmsg.Request {
			req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
			req.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: "u", Mechanism: 1, Iterations: 4096, Salt: []byte("salt"), SaltedPassword: make([]byte, 32)}}
			return req
		})},
		{name: "a SCRAM user less", req: one(func() kmsg.Request {
			req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
			req.Deletions = []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: "u", Mechanism: 1}}
			return req
		})},
		{name: "another login", req: one(func() kmsg.Request {
			req := kmsg.NewPtrSASLHandshakeRequest()
			req.Mechanism = "PLAIN"
			return req
		})},
		{name: "another token", req: one(func() kmsg.Request { return kmsg.NewPtrSASLAuthenticateRequest() })},
		{name: "a delegation token", req: one(func() kmsg.Request { return kmsg.NewPtrCreateDelegationTokenRequest() })},
		{name: "a delegation token renewed", req: one(func() kmsg.Request { return kmsg.NewPtrRenewDelegationTokenRequest() })},
		{name: "a delegation token ended", req: one(func() kmsg.Request { return kmsg.NewPtrExpireDelegationTokenRequest() })},
		{name: "delegation tokens", req: one(func() kmsg.Request { return kmsg.NewPtrDescribeDelegationTokenRequest() })},
	}
}
