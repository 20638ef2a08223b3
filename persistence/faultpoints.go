package persistence

import (
	"os"
	"path/filepath"
	"strings"

	"kagami/internal/invariant"
	"kagami/messages"
)

// reachedFile names the fault point before or after a change of a file, like
// "file.data.log.write.half" or "file.states.snapshot.rename.before": whose
// file, what kind of file, what is done. So there is a point between any two
// changes that an append, flush, roll, cut, checkpoint, snapshot or recovery
// makes, without naming each.
func reachedFile(op, name, place string) {
	if invariant.FaultPoints {
		invariant.Reached("file." + fileScope(name) + "." + fileKind(name) + "." + op + "." + place)
	}
}

// writeInHalves is WriteAt with a fault point before it, in its middle (a torn
// write) and behind it.
func writeInHalves(f *os.File, b []byte, at int64) (int, error) {
	reachedFile("write", f.Name(), "before")
	half := len(b) / 2
	n, err := f.WriteAt(b[:half], at)
	if err != nil {
		return n, err
	}
	reachedFile("write", f.Name(), "half")
	m, err := f.WriteAt(b[half:], at+int64(half))
	reachedFile("write", f.Name(), "after")
	return n + m, err
}

// fileScope is whose file it is, see the journal's fault points.
func fileScope(name string) string {
	switch folder := filepath.Base(filepath.Dir(name)); {
	case strings.HasPrefix(folder, messages.ClusterMetadataTopic):
		return "metadata"
	case strings.HasPrefix(folder, messages.MirrorStateTopic):
		return "states"
	case strings.HasPrefix(folder, "__"):
		return "internal"
	case strings.Contains(folder, "-"):
		return "data"
	default:
		return "node" // files of the data folder itself, and partition folders
	}
}

// fileKind is the last of the file's suffixes, tmp with the one before it, and
// the whole name where there is none.
func fileKind(name string) string {
	base := filepath.Base(name)
	body, tmp := strings.CutSuffix(base, ".tmp")
	kind := strings.TrimPrefix(filepath.Ext(body), ".")
	if kind == "" {
		kind = body
	}
	if tmp {
		kind += ".tmp"
	}
	return kind
}
