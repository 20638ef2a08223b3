package diff

import "strconv"

func versionDifferences() []known {
	out := []known{
		{key: 18, path: "ApiKeys[2*]", kafka: absent, why: "Requests of cluster mirroring (KIP-1279) and of Kagami's own tools; see concepts.md."},
		{key: 18, path: "ApiKeys[10].MaxVersion", kafka: "6", kagami: "7", why: "Version 7 finds coordinators of mirrors (KIP-1279)."},
		{key: 18, path: "SupportedFeatures[*]*", why: "Features are those that this build has."},
		{key: 18, path: "FinalizedFeatures[*]*", why: "Features are those that this build has."},
	}
	for _, group := range []struct {
		why  string
		keys []int
	}{
		{"KRaft's own quorum; here the metadata log is a journal of its own.", []int{55, 80, 81, 94}},
		{"Client metrics (KIP-714).", []int{71, 72}},
		{"Consuming by share groups (KIP-932), and their coordinators' own requests.", []int{76, 78, 79, 83, 84, 85, 86, 87}},
		{"Streams groups (KIP-1071).", []int{88, 89, 93}},
	} {
		for _, key := range group.keys {
			out = append(out, known{key: 18, path: "ApiKeys[" + strconv.Itoa(key) + "]*", seldom: true, kagami: absent, why: "Not served: " + group.why})
		}
	}
	return out
}
