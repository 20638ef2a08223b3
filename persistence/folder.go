package persistence

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strconv"
	"strings"

	"kagami/messages"
)

const (
	metaFile     = "meta.properties"
	lockFile     = ".lock"
	topicFile    = "kagami.topic" // the full topic name where the folder's had to be shortened
	deleteSuffix = "-delete"
	newSuffix    = ".new"

	fileNameMax = 255
)

// folderName is topic-partition. Only a topic of 249 characters with a
// partition of six digits is too long for a file name: then part of the topic
// gives way to its hash, behind a '~', which no topic name can hold.
func folderName(tp messages.TopicPartition) string {
	s := tp.String()
	if len(s) <= fileNameMax {
		return s
	}
	h := fnv.New128a()
	_, _ = h.Write([]byte(tp.Topic))
	return fmt.Sprintf("%s~%x-%d", tp.Topic[:200], h.Sum(nil), tp.Partition)
}

// parseFolderName is the reverse; shortened says that the topic's name must be
// read from topicFile.
func parseFolderName(name string) (tp messages.TopicPartition, shortened, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return tp, false, false
	}
	p, err := strconv.ParseUint(name[i+1:], 10, 31)
	if err != nil || strconv.FormatUint(p, 10) != name[i+1:] {
		return tp, false, false
	}
	tp = messages.TopicPartition{Topic: name[:i], Partition: int32(p)}
	if strings.IndexByte(tp.Topic, '~') >= 0 {
		return tp, true, true
	}
	return tp, false, messages.CheckTopicName(tp.Topic) == nil
}

// leftover reports a folder that a crash has left: a log that was being created
// or deleted.
func leftover(name string) bool {
	for _, suffix := range []string{deleteSuffix, newSuffix} {
		if rest, ok := strings.CutSuffix(name, suffix); ok {
			i := strings.LastIndexByte(rest, '.')
			if _, err := hex.DecodeString(rest[i+1:]); err == nil && len(rest)-i-1 == 32 {
				return true
			}
		}
	}
	return false
}

// scratchName is a name of its own that leftover knows.
func scratchName(folder, suffix string) string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	tail := "." + hex.EncodeToString(id[:]) + suffix
	return folder[:min(len(folder), fileNameMax-len(tail))] + tail
}

// partition.metadata, version 0 (Kafka's PartitionMetadataFile).

func encodePartitionMetadata(id messages.TopicID) []byte {
	return fmt.Appendf(nil, "version: 0\ntopic_id: %s\n", id)
}

// decodePartitionMetadata returns the zero id for anything that it can't read.
func decodePartitionMetadata(b []byte) messages.TopicID {
	if !bytes.HasPrefix(b, []byte("version: 0\n")) {
		return messages.TopicID{}
	}
	_, rest, _ := bytes.Cut(b, []byte("topic_id: "))
	id, err := messages.ParseTopicID(string(bytes.TrimSpace(rest)))
	if err != nil {
		return messages.TopicID{}
	}
	return id
}

// readInfo finds out whose log a folder holds.
func readInfo(fsys FS, dir string, tp messages.TopicPartition, shortened bool) (Info, error) {
	folder := filepath.Join(dir, folderName(tp))
	if shortened {
		folder = filepath.Join(dir, tp.String())
		b, err := fsys.ReadFile(filepath.Join(folder, topicFile))
		if err != nil {
			return Info{}, storageError("read", folder, err)
		}
		tp.Topic = string(b)
	}
	info := Info{TopicPartition: tp, Key: messages.PartitionKey{Partition: tp.Partition}}
	st, ok, err := readState(fsys, folder)
	if err != nil {
		return info, err
	}
	if ok {
		info.Key = st.key
		info.Key.Partition = tp.Partition
	}
	if info.Key.TopicID.IsZero() {
		b, err := fsys.ReadFile(filepath.Join(folder, partitionFile))
		if err != nil && !isNotExist(err) {
			return info, storageError("read", folder, err)
		}
		info.Key.TopicID = decodePartitionMetadata(b)
	}
	return info, nil
}

// Meta is what meta.properties says of a data folder.
type Meta struct {
	ClusterID string
	NodeID    messages.NodeID
}

// ReadMeta reads meta.properties of a data folder; ok is false if there is none.
func ReadMeta(fsys FS, dir string) (m Meta, ok bool, err error) {
	b, err := fsys.ReadFile(filepath.Join(dir, metaFile))
	if isNotExist(err) {
		return Meta{}, false, nil
	}
	if err != nil {
		return Meta{}, false, storageError("read", filepath.Join(dir, metaFile), err)
	}
	m.NodeID = messages.NoNode
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "version":
			if value != "1" {
				return m, true, fmt.Errorf("%w: %s has version %s, 1 is known", ErrForeignFolder, metaFile, value)
			}
		case "cluster.id":
			m.ClusterID = value
		case "node.id":
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return m, true, &CorruptError{File: metaFile, Pos: -1, Offset: -1, Reason: "node.id " + value}
			}
			m.NodeID = messages.NodeID(n)
		}
	}
	return m, true, nil
}

// checkMeta compares the folder's owner with want, or makes want the owner of a
// new folder. An empty cluster id in want is not compared and not written.
func checkMeta(fsys FS, dir string, want Meta) error {
	have, ok, err := ReadMeta(fsys, dir)
	if err != nil {
		return err
	}
	if !ok {
		if want.ClusterID == "" {
			return nil
		}
		data := fmt.Appendf(nil, "version=1\ncluster.id=%s\nnode.id=%d\n", want.ClusterID, want.NodeID)
		if err := writeFileAtomic(fsys, filepath.Join(dir, metaFile), data, true); err != nil {
			return storageError("write", filepath.Join(dir, metaFile), err)
		}
		return nil
	}
	if (want.ClusterID != "" && have.ClusterID != want.ClusterID) || have.NodeID != want.NodeID {
		return fmt.Errorf("%w: %s belongs to node %d of cluster %q, this is node %d of %q",
			ErrForeignFolder, dir, have.NodeID, have.ClusterID, want.NodeID, want.ClusterID)
	}
	return nil
}
