package metadata

import (
	"errors"
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

	"kagami/messages/batch"
	"kagami/messages/secrets"
)

// When secrets change their key, from clear text to the first one most of all, what the log
// and older snapshots have of them below goes at once: a snapshot is written, and nothing
// but it is kept. Whether that is done is read from the files, so that a crash on the way
// is nothing but a delay.

// errNotForgotten: records came while the snapshot was written, in the same segment.
var errNotForgotten = errors.New("older secrets are still in the metadata log's files; they go with the next change")

// checkForgotten looks whether older secrets are gone, and says so; end is that of the image in
// the snapshot.
func (s *Store) checkForgotten(end int64) error {
	left, err := s.oldSecrets()
	switch {
	case err != nil:
		return err
	case left:
		return errNotForgotten
	}
	s.snap.forgot.Store(end)
	if s.opts.SecretsKey != "" && s.Image().SecretCounts()[""] > 0 {
		return nil // more pieces come, see Image.Reseal: nobody is to take it for done
	}
	s.log.Info("the metadata log's files on this node have no secrets under other keys than now", zap.Any("secrets", s.Image().SecretCounts()))
	return nil
}

// oldSecrets reports whether a file of the log, or a snapshot, has a secret under a key, or
// in clear, that none of the image is under. Without a key, an image without secrets has nothing to compare.
func (s *Store) oldSecrets() (bool, error) {
	now := s.Image().SecretCounts()
	if s.opts.SecretsKey != "" {
		now[s.opts.SecretsKey]++ // what was removed under it may stay as long as the rest
	}
	if len(now) == 0 {
		return false, nil
	}
	files, err := s.logFiles()
	if err != nil {
		return false, err
	}
	paths := make([]string, 0, len(files)+snapshotKeep)
	for _, f := range files {
		paths = append(paths, f.name)
	}
	names, err := listSnapshots(s.opts.FS, s.opts.Dir)
	if err != nil {
		return false, err
	}
	for _, n := range names {
		paths = append(paths, filepath.Join(s.opts.Dir, n))
	}
	for _, path := range paths {
		if old, err := s.fileHasOld(path, now); old || err != nil {
			return old, err
		}
	}
	return false, nil
}

func (s *Store) fileHasOld(path string, now map[string]int) (old bool, _ error) {
	err := s.eachBatch(path, 0, func(h batch.Header, whole func() ([]byte, error)) (bool, error) {
		if h.IsControl() {
			return true, nil
		}
		b, err := whole()
		if err != nil {
			return false, nil //nolint:nilerr // what is damaged is the replay's to tell
		}
		raw, err := readRecords(h, b)
		if err != nil {
			return false, nil //nolint:nilerr // as above
		}
		for _, r := range raw {
			rec, err := readFrame(r.value)
			if err != nil {
				continue
			}
			for _, secret := range recordSecrets(rec) {
				id, _ := secrets.Sealed(secret)
				old = old || now[id] == 0
			}
		}
		return !old, nil
	})
	if err != nil {
		return false, fmt.Errorf("look for older secrets: %w", err)
	}
	return old, nil
}
