package broker

// DescribeUserScramCredentials: served version 0 (KIP-554). Describe on the cluster. What
// there is, and how many iterations; never a key or a salt.

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kagami/messages"
	"kagami/persistence/metadata"
)

func (s *Server) handleDescribeUserScramCredentials(_ context.Context, r *request) reply {
	req := r.body.(*kmsg.DescribeUserSCRAMCredentialsRequest)
	resp := kmsg.NewPtrDescribeUserSCRAMCredentialsResponse()
	resp.Version = req.Version
	if !s.allowedCluster(r, OpDescribe) {
		resp.ErrorCode, resp.ErrorMessage = r.code(messages.ErrClusterNotAuthorized), errorText(messages.ErrClusterNotAuthorized)
		for _, u := range req.Users {
			rr := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
			rr.User, rr.ErrorCode, rr.ErrorMessage = u.Name, resp.ErrorCode, resp.ErrorMessage
			resp.Results = append(resp.Results, rr)
		}
		return answer(resp)
	}
	img := s.image()
	has := make(map[string][]metadata.ScramUser)
	var names []string
	for _, u := range img.ScramUsers() {
		if len(has[u.Name]) == 0 {
			names = append(names, u.Name)
		}
		has[u.Name] = append(has[u.Name], u)
	}
	asked := make(map[string]int)
	if len(req.Users) > 0 {
		names = nil
		for _, u := range req.Users {
			if asked[u.Name]++; asked[u.Name] == 1 {
				names = append(names, u.Name)
			}
		}
	}
	for _, name := range names {
		rr := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		rr.User = name
		var err error
		switch {
		case asked[name] > 1:
			err = fmt.Errorf("%w: Cannot describe SCRAM credentials for the same user twice in a single request: %s", messages.ErrDuplicateResource, name)
		case len(has[name]) == 0:
			err = fmt.Errorf("%w: Attempt to describe a user credential that does not exist: %s", messages.ErrResourceNotFound, name)
		}
		rr.ErrorCode, rr.ErrorMessage = r.code(err), errorText(err)
		if err == nil {
			for _, u := range has[name] {
				c, _ := img.ScramCredential(u)
				rr.CredentialInfos = append(rr.CredentialInfos, kmsg.DescribeUserSCRAMCredentialsResponseResultCredentialInfo{Mechanism: int8(u.Mechanism), Iterations: c.Iterations})
			}
		}
		resp.Results = append(resp.Results, rr)
	}
	return answer(resp)
}
