package tool

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kagami/messages"
	"kagami/messages/batch"
)

// Formats of kafka-dump-log.
const (
	formatText      = "text"
	formatJSONLines = "json-lines"
)

// dumpTool is one run of kafka-dump-log.
type dumpTool struct {
	Streams
	*flags
	files, bootstrap, commandConfig, format                        *string
	deep, printData, mirrorState, metadata, skipMeta, sanity, only *bool
	maxBytes                                                       *int
}

// DumpLog is kafka-dump-log: it prints log segments and their indexes as
// Kafka's tool does, and reads __mirror_state of a running cluster as well. It
// returns the exit code.
func DumpLog(ctx context.Context, args []string, s Streams) int {
	f := newFlags("kafka-dump-log", "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly corrupt log segment.")
	t := &dumpTool{Streams: s, flags: f}
	t.files = f.text("files", "String: file1, file2, ...", "The comma separated list of data and index log files to be dumped. A folder stands for the .log files in it; with --mirror-state-decoder a data folder stands for its "+messages.MirrorStateTopic+" partitions.")
	t.bootstrap = f.text("bootstrap-server", "server to connect to", "Instead of --files: dump "+messages.MirrorStateTopic+" of a running cluster.")
	t.commandConfig = f.text("command-config", "property file", "Settings of the client. Only with --bootstrap-server.")
	t.format = f.text("format", "String", "text, or json-lines: one JSON object per record of "+messages.MirrorStateTopic+", as MirrorStateMessageFormatter prints it. (default: text)")
	t.deep = f.Bool("deep-iteration", false, "If set, uses deep instead of shallow iteration. Automatically set if print-data-log is enabled.")
	t.printData = f.Bool("print-data-log", false, "If set, printing the messages content when dumping data logs. Automatically set if any decoder option is specified.")
	t.mirrorState = f.Bool("mirror-state-decoder", false, "If set, log data will be parsed as mirror states from the "+messages.MirrorStateTopic+" topic.")
	t.metadata = f.Bool("cluster-metadata-decoder", false, "If set, log data will be parsed as cluster metadata records.")
	t.skipMeta = f.Bool("skip-record-metadata", false, "Whether to skip printing metadata for each record.")
	t.sanity = f.Bool("index-sanity-check", false, "If set, just checks the index sanity without printing its content.")
	t.only = f.Bool("verify-index-only", false, "If set, just verify the index log without printing its content.")
	f.args["max-bytes"] = "Integer: size"
	t.maxBytes = f.Int("max-bytes", 1<<31-1, "Limit the amount of total batches read in bytes avoiding reading the whole .log file(s).")
	return t.main(ctx, args)
}

func (t *dumpTool) main(ctx context.Context, args []string) int {
	if err := t.parse(args); err != nil {
		return t.finish(err, t.Streams)
	}
	if t.infoOnly(t.Streams) {
		return 0
	}
	if err := t.check(); err != nil {
		return t.finish(err, t.Streams)
	}
	if *t.bootstrap != "" {
		return t.finish(t.dumpCluster(ctx), t.Streams)
	}
	return t.finish(t.dumpFiles(), t.Streams)
}

func (t *dumpTool) check() error {
	if *t.format == "" {
		*t.format = formatText
	}
	switch {
	case (*t.files == "") == (*t.bootstrap == ""):
		return &usageError{"Exactly one of --files and --bootstrap-server must be specified", true}
	case *t.format != formatText && *t.format != formatJSONLines:
		return usagef("--format must be %s or %s", formatText, formatJSONLines)
	case *t.mirrorState && *t.metadata:
		return usagef("Only one decoder may be specified")
	case *t.metadata && (*t.bootstrap != "" || *t.format == formatJSONLines):
		return usagef("--cluster-metadata-decoder is only valid with --files and --format text")
	}
	if *t.bootstrap != "" || *t.format == formatJSONLines {
		*t.mirrorState = true
	}
	*t.printData = *t.printData || *t.mirrorState || *t.metadata
	*t.deep = *t.deep || *t.printData
	return nil
}

func (t *dumpTool) dumpFiles() error {
	files, err := t.expandFiles()
	if err != nil {
		return err
	}
	for _, file := range files {
		if *t.format == formatText {
			t.outf("Dumping %s\n", file)
		}
		if err := t.dumpFile(file); err != nil {
			return err
		}
	}
	return nil
}

func (t *dumpTool) dumpFile(file string) error {
	if _, err := os.Stat(file); err != nil {
		return err
	}
	switch filepath.Ext(file) {
	case ".log":
		return t.dumpSegment(file)
	case ".index":
		return t.dumpIndex(file)
	case ".timeindex":
		return t.dumpTimeIndex(file)
	case ".txnindex":
		return t.dumpTxnIndex(file)
	case ".snapshot":
		return t.dumpProducers(file)
	default:
		t.errf("Ignoring unknown file %s\n", file)
		return nil
	}
}

// expandFiles replaces folders by the log files that they stand for, in order.
func (t *dumpTool) expandFiles() ([]string, error) {
	var out []string
	for _, name := range messages.ParseList(*t.files) {
		info, err := os.Stat(name)
		if err != nil || !info.IsDir() { // a missing file is told when it is its turn
			out = append(out, name)
			continue
		}
		folders := []string{name}
		if *t.mirrorState {
			partitions, err := filepath.Glob(filepath.Join(name, messages.MirrorStateTopic+"-*"))
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", name, err)
			}
			slices.SortFunc(partitions, func(a, b string) int { return partitionOf(a) - partitionOf(b) })
			folders = append(folders, partitions...)
		}
		for _, folder := range folders {
			logs, err := filepath.Glob(filepath.Join(folder, "*.log"))
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", folder, err)
			}
			slices.Sort(logs)
			out = append(out, logs...)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no .log file is in %s: --files takes files or the folders of partitions, such as %s", *t.files, filepath.Join(*t.files, "my-topic-0"))
	}
	return out, nil
}

func partitionOf(folder string) int {
	n, err := strconv.Atoi(folder[strings.LastIndexByte(folder, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

// batchSizeMax bounds what a batch header can make the tool read, bytes.
const batchSizeMax = 1 << 30

func (t *dumpTool) dumpSegment(file string) error {
	base := strings.TrimSuffix(filepath.Base(file), ".log")
	if *t.format == formatText {
		start, err := strconv.ParseInt(base, 10, 64)
		if err != nil {
			return fmt.Errorf("the name of %s is no offset", file)
		}
		t.outf("Log starting offset: %d\n", start)
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at %s: %w", file, err)
	}
	p := &printer{tool: t}
	pos, end := int64(0), min(info.Size(), int64(*t.maxBytes))
	for pos < end {
		b, err := readBatch(f, pos, info.Size())
		if err != nil {
			break // what follows is reported below, as Kafka's tool does
		}
		if err := p.batch(b, pos); err != nil {
			return err
		}
		pos += int64(len(b))
	}
	if pos < end && end == info.Size() {
		t.outf("Found %d invalid bytes at the end of %s\n", info.Size()-pos, filepath.Base(file))
	}
	return nil
}

func readBatch(f io.ReaderAt, pos, size int64) ([]byte, error) {
	head := make([]byte, batch.HeaderSize)
	if _, err := f.ReadAt(head, pos); err != nil {
		return nil, err
	}
	h, err := batch.ParseHeader(head)
	if err != nil {
		return nil, err
	}
	if int64(h.Size()) > size-pos || h.Size() > batchSizeMax {
		return nil, batch.ErrCorrupt
	}
	b := make([]byte, h.Size())
	_, err = f.ReadAt(b, pos)
	return b, err
}
