package messages

import "testing"

// TestD25CoordinatorShard is the hash table of records.md, negative hashes included.
func TestD25CoordinatorShard(t *testing.T) {
	for _, tc := range []struct {
		mirror      string
		hash        int32
		mod50, mod3 int32
	}{
		{"a", 97, 47, 1},
		{"my-mirror", 1191661312, 12, 1},
		{"new-mirror", -860874612, 12, 0},
		{"cluster1", 1265053047, 47, 0},
		{"a-to-b", -1472817284, 34, 2},
		{"b-to-a", -1444188134, 34, 2},
		{"polygenelubricants", -2147483648, 0, 0},
	} {
		t.Run(tc.mirror, func(t *testing.T) {
			if got := JavaHash(tc.mirror); got != tc.hash {
				t.Errorf("JavaHash = %d, want %d", got, tc.hash)
			}
			if got := CoordinatorShard(tc.mirror, 50); got != tc.mod50 {
				t.Errorf("shard of 50 = %d, want %d", got, tc.mod50)
			}
			if got := CoordinatorShard(tc.mirror, 3); got != tc.mod3 {
				t.Errorf("shard of 3 = %d, want %d", got, tc.mod3)
			}
		})
	}
}

func TestD25JavaHashBeyondASCII(t *testing.T) {
	// "é" is one UTF-16 unit, the clef is two (a surrogate pair).
	if got, want := JavaHash("é"), int32(233); got != want {
		t.Errorf("JavaHash = %d, want %d", got, want)
	}
	if got, want := JavaHash("\U0001D11E"), int32(0xD834*31+0xDD1E); got != want {
		t.Errorf("JavaHash = %d, want %d", got, want)
	}
}
